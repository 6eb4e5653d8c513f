//! Tests of `src/nvshmem/plugin.rs`, whose module they are.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn the_plugin_lies_beside_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = Plugin::beside(folder, 3).unwrap_err().to_string();
    for part in [&folder.display().to_string(), "no nvshmem_bootstrap_uid.so.3", "no nvshmem_bootstrap_uid.so"] {
        assert!(refused.contains(part), "{refused}");
    }

    std::fs::write(folder.join("nvshmem_bootstrap_uid.so"), "").unwrap();
    let plugin = Plugin::beside(folder, 3).unwrap();
    assert_eq!((plugin.path(), plugin.version()), (&*folder.join("nvshmem_bootstrap_uid.so"), None));

    std::fs::write(folder.join("nvshmem_bootstrap_uid.so.3.0.0"), "").unwrap();
    symlink("nvshmem_bootstrap_uid.so.3.0.0", folder.join("nvshmem_bootstrap_uid.so.3")).unwrap();
    let plugin = Plugin::beside(folder, 3).unwrap();
    assert_eq!((plugin.path(), plugin.version()), (&*folder.join("nvshmem_bootstrap_uid.so.3"), Some("3.0.0")));
    // A plugin of another major version is not used.
    assert_eq!(Plugin::beside(folder, 4).unwrap().path(), folder.join("nvshmem_bootstrap_uid.so"));
}
