//! Tests of `src/bootstrap/directory.rs`, whose module they are.

use super::*;

#[test]
fn what_is_held_stays_and_what_was_left_is_swept() {
    let parent = tempfile::tempdir().unwrap();
    let named = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
    let (held, left, file) = (named("held"), named("left"), named("file"));
    let another = parent.path().join("symmetra-other");
    [&held, &left, &another].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
    std::fs::write(left.join("mesh.sock"), "").unwrap();
    std::fs::write(&file, "").unwrap();
    let lock_of_held = lock(&held).unwrap();
    assert!(lock_of_held.is_some());
    assert!(lock(&held).unwrap().is_none(), "locked twice");
    sweep(parent.path());
    assert_eq!([&held, &left, &another, &file].map(|path| path.exists()), [true, false, true, true]);
    drop(lock_of_held);
    sweep(parent.path());
    assert!(!held.exists());
    assert!(lock(&held).unwrap().is_none(), "it is not there");
}
