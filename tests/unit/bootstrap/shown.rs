//! Tests of `src/bootstrap/shown.rs`, whose module they are.

use super::*;

#[test]
fn a_meeting_is_read_as_it_was_written() {
    let (host, place) = ("here".to_owned(), Some("port 7".to_owned()));
    let meeting = MeetingRank { rank: 3, world_size: 8, namespace: 7, process: 11, host, since_ns: u64::MAX, place };
    let mut file = File::from(meeting.write().unwrap());
    std::io::Seek::rewind(&mut file).unwrap();
    assert_eq!(MeetingRank::read(&file), Some(meeting));
    let mut other = tempfile::tempfile().unwrap();
    assert_eq!(MeetingRank::read(&other), None);
    other.write_all(br#"{"rank": 1}"#).unwrap();
    std::io::Seek::rewind(&mut other).unwrap();
    assert_eq!(MeetingRank::read(&other), None);
}
