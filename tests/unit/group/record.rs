//! Tests of `src/group/record.rs`, whose module they are.

use super::super::control_page::PageMapping;
use super::*;
use crate::device::DeviceKind;
use crate::group::open::PROTOCOL;
use crate::types::{Dtype, Reduction};

fn page(rank: usize) -> PageMapping {
    let page = PageMapping::create("test").unwrap();
    page.identity().begin(rank, 4, DeviceKind::Host, PROTOCOL);
    page.identity().join(17);
    for number in 0..3 {
        let call = EnqueuedCall::new(8 * number, Operation::AllReduce.number(), Dtype::F32, Reduction::Sum, 0, 0);
        page.history.push(call, (1000 * number) & !1 | number & 1);
    }
    page.host_call.begin(4, "barrier");
    page
}

fn occasion(by: usize, reason: &str) -> Occasion {
    let (failure, reason) = (Some(Failed::PeerLost), reason.to_owned());
    Occasion { rank: 2, world_size: 4, by, reason, failure, culprit: Some(2) }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made");
    let record = Record::new(&page(2), occasion(2, "lost")).unwrap();
    assert_eq!((record.rank, record.world_size, record.group, record.enqueued), (2, 4, 17, 3));
    let moments: Vec<_> = record.calls.iter().map(|call| (call.number, call.at_ns, call.graph, call.bytes)).collect();
    assert_eq!(moments, [(0, 0, false, 0), (1, 1000, true, 8), (2, 2000, false, 16)]);
    let exchange = (record.exchanges, record.last_exchange.as_deref(), record.in_exchange);
    assert_eq!((exchange, record.gave_up_in.as_deref()), ((5, Some("barrier"), true), None));
    let path = record.write(&folder).unwrap();
    let boot = boot_id();
    let name = format!("symmetra-group-{}-17-rank-2.json", boot.split('-').next().unwrap());
    assert_eq!((record.boot.as_str(), path.as_path()), (boot.as_str(), folder.join(name).as_path()));
    assert_eq!(Record::read(&path).unwrap(), record);
    // Another rank does not replace the record, and the rank itself does.
    let names = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    for (by, kept) in [(1, "lost"), (2, "later")] {
        let later = Record::new(&page(2), occasion(by, "later")).unwrap();
        assert_eq!(later.write(&folder).unwrap(), path);
        assert_eq!(Record::read(&path).unwrap().reason, kept);
        assert_eq!(names(), [path.file_name().unwrap()]);
    }
    // A record that the program asked for, before the last calls: the record by another rank has more.
    let early = Record { failure: None, enqueued: 2, ..record.clone() };
    early.write(&folder).unwrap();
    Record { by: 1, ..record.clone() }.write(&folder).unwrap();
    assert_eq!(Record::read(&path).unwrap(), Record { by: 1, ..record });
    assert_eq!(names(), [path.file_name().unwrap()]);
}

/// A rank that fails to open two groups leaves two records.
#[test]
fn every_opening_that_fails_has_a_record_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let error = Error::PeerLost { rank: 1, detail: String::new() };
    let opening = |begun_ns: u64| {
        let page = PageMapping::create("test").unwrap();
        page.identity().begin(2, 4, DeviceKind::Host, PROTOCOL);
        page.identity().begun_ns.store(begun_ns, Ordering::Relaxed);
        page.dump_opening(2, 4, folder.path(), &error);
    };
    [5, 9].into_iter().for_each(opening);
    for begun_ns in [5, 9] {
        let record = Record::read(&folder.path().join(format!("symmetra-opening-{begun_ns}-rank-2.json"))).unwrap();
        assert_eq!((record.group, record.begun_ns, record.culprit), (0, begun_ns, Some(1)));
    }
}

#[test]
fn files_that_are_no_records_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.json");
    assert!(matches!(Record::read(&path), Err(Error::System { .. })));
    let record = Record::new(&page(2), occasion(2, "lost")).unwrap();
    let text = serde_json::to_string(&record).unwrap();
    let call = |number| RecordedCall { number, ..record.calls[0].clone() };
    let too_many = serde_json::to_string(&Record { calls: (0..1025).map(call).collect(), ..record.clone() }).unwrap();
    for (text, words) in [
        ("", "EOF"),
        (&text[..text.len() / 2], "EOF"),
        (&text.replace("\"version\":1", "\"version\":2"), "its version is 2, this build reads 1"),
        (&text.replace("\"world_size\":4", "\"world_size\":1"), "rank 2 of 1"),
        (&text.replace("\"world_size\":4", "\"world_size\":1000000000"), "rank 2 of 1000000000"),
        (&text.replace("\"number\":1", "\"number\":2"), "the numbers of its calls do not rise"),
        (&too_many, "the number of its calls is 1025, the most is 1024"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Record::read(&path).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Record::new(&page(2), occasion(2, "lost")).unwrap().write(&file).unwrap_err();
    assert!(matches!(error, Error::System { .. }) && error.to_string().contains("-17-rank-2.json"), "{error}");
    // A disk without room.
    let record = Record::new(&page(2), occasion(2, "lost")).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(record.write_to(full).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    // The new file cannot take the name of a folder, and is removed.
    std::fs::create_dir(folder.path().join(record.file_name())).unwrap();
    assert!(matches!(record.write(folder.path()), Err(Error::System { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
