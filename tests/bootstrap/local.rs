//! The directory of unix sockets.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use symmetra::bootstrap::Local;

use crate::{converse, invalid, on_threads, private_directory, within, words};

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_missing_directory_is_made_for_us_alone_and_the_socket_is_removed() {
    let parent = private_directory();
    let directory = parent.path().join("ranks");
    on_threads(2, |rank| converse(&mut Local::connect(&directory, rank, 2, within(10.0)).unwrap()));
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn pitfall_35_a_directory_that_is_not_ours_alone_is_refused() {
    let parent = private_directory();
    let directory = parent.path().join("ranks");
    std::fs::create_dir(&directory).unwrap();
    for mode in [0o755, 0o770, 0o600] {
        set_mode(&directory, mode);
        let message = invalid(Local::connect(&directory, 0, 2, within(1.0)));
        assert!(message.contains(&format!("mode {mode:04o}")) && message.contains("0700"), "{message}");
    }
    set_mode(&directory, 0o700);
    let link = parent.path().join("link");
    symlink(&directory, &link).unwrap();
    assert!(invalid(Local::connect(&link, 0, 2, within(1.0))).contains("not a file or a link"));
    std::fs::write(parent.path().join("file"), b"").unwrap();
    assert!(invalid(Local::connect(parent.path().join("file"), 1, 2, within(1.0))).contains("not a file or a link"));
    let deep = directory.join("d".repeat(100));
    assert!(invalid(Local::connect(deep, 0, 2, within(1.0))).contains("107 bytes"));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&directory, Some(54321), None).unwrap();
        let message = invalid(Local::connect(&directory, 0, 2, within(1.0)));
        assert!(message.contains("owned by user 54321"), "{message}");
    }
}

#[test]
fn pitfall_17_the_socket_of_a_crash_is_replaced() {
    let directory = private_directory();
    for name in ["rank0.sock", "rank0.new"] {
        drop(UnixListener::bind(directory.path().join(name)).unwrap());
    }
    on_threads(3, |rank| {
        if rank == 0 {
            thread::sleep(Duration::from_millis(100));
        }
        converse(&mut Local::connect(&directory, rank, 3, within(10.0)).unwrap());
    });
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn pitfall_35_a_second_rank_0_of_a_directory_is_refused_and_the_group_goes_on() {
    let directory = private_directory();
    thread::scope(|scope| {
        // Only the refused of two can be done before rank 1 comes.
        let (done, results) = channel();
        for _ in 0..2 {
            let (done, directory) = (done.clone(), &directory);
            scope.spawn(move || done.send(Local::connect(directory, 0, 2, within(10.0)).map(|mut l| converse(&mut l))));
        }
        let message = words(results.recv_timeout(Duration::from_secs(10)).unwrap());
        assert!(message.contains("rank 0 was claimed before"), "{message}");
        converse(&mut Local::connect(&directory, 1, 2, within(10.0)).unwrap());
        results.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
    });
}
