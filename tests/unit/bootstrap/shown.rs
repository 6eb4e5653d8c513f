//! Tests of `src/bootstrap/shown.rs`, whose module they are.

use super::*;

#[test]
fn a_meeting_is_read_as_it_was_written() {
    let (host, place) = ("here".to_owned(), Some("port 7".to_owned()));
    let (since_ns, open_to_hosts) = (u64::MAX, true);
    let meeting =
        MeetingRank { rank: 3, world_size: 8, namespace: 7, process: 11, host, since_ns, place, open_to_hosts };
    let mut file = File::from(meeting.write().unwrap());
    std::io::Seek::rewind(&mut file).unwrap();
    assert_eq!(MeetingRank::read(&file).as_ref(), Some(&meeting));
    let mut other = tempfile::tempfile().unwrap();
    assert_eq!(MeetingRank::read(&other), None);
    other.write_all(br#"{"rank": 1}"#).unwrap();
    std::io::Seek::rewind(&mut other).unwrap();
    assert_eq!(MeetingRank::read(&other), None);
    // Numbers that no meeting has.
    for (rank, world_size) in [(3, 3), (0, 0), (0, 65_536), (1, usize::MAX)] {
        let mut file = File::from(MeetingRank { rank, world_size, ..meeting.clone() }.write().unwrap());
        std::io::Seek::rewind(&mut file).unwrap();
        assert_eq!(MeetingRank::read(&file), None, "{rank} of {world_size}");
    }
}
