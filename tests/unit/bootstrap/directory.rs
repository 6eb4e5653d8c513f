//! Tests of `src/bootstrap/directory.rs`, whose module they are.

use std::os::unix::net::UnixListener;

use super::*;

fn exist<const N: usize>(paths: [&PathBuf; N]) -> [bool; N] {
    paths.map(|path| path.exists())
}

#[test]
fn what_is_held_stays_and_what_was_left_is_swept() {
    let parent = tempfile::tempdir().unwrap();
    let named = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
    let (held, left, file) = (named("00000001"), named("89abcdef"), named("00000003"));
    let another = parent.path().join("symmetra-other");
    [&held, &left, &another].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
    // As a rank leaves it that was killed: sockets, in a directory inside too.
    drop(UnixListener::bind(left.join("mesh.sock")).unwrap());
    std::fs::create_dir(left.join("host")).unwrap();
    drop(UnixListener::bind(left.join("host/rank0.sock")).unwrap());
    std::fs::write(&file, "").unwrap();
    let lock_of_held = lock(&held).unwrap();
    assert!(lock_of_held.is_some());
    assert!(lock(&held).unwrap().is_none(), "locked twice");
    sweep(parent.path());
    assert_eq!(exist([&held, &left, &another, &file]), [true, false, true, true]);
    drop(lock_of_held);
    sweep(parent.path());
    assert!(!held.exists());
    assert!(lock(&held).unwrap().is_none(), "it is not there");
}

#[test]
fn what_a_user_made_stays() {
    let parent = tempfile::tempdir().unwrap();
    let named = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
    // Names that no rank uses, and a name that a rank could use.
    let others = [named("results"), named("0000000"), named("000000012"), named("0000000g")];
    let (full, deep, link) = (named("00000001"), named("00000002"), named("00000003"));
    others.iter().chain([&full, &deep]).for_each(|path| std::fs::create_dir(path).unwrap());
    std::fs::write(full.join("results.csv"), "1").unwrap();
    drop(UnixListener::bind(full.join("mesh.sock")).unwrap());
    std::fs::create_dir(deep.join("host")).unwrap();
    std::os::unix::fs::symlink("/etc", deep.join("host/link")).unwrap();
    std::os::unix::fs::symlink(&others[0], &link).unwrap();
    sweep(parent.path());
    assert_eq!(exist([&others[0], &others[1], &others[2], &others[3]]), [true; 4]);
    assert_eq!(exist([&full.join("results.csv"), &full.join("mesh.sock"), &link]), [true; 3]);
    assert!(deep.join("host/link").is_symlink());
}
