//! Tests of `src/log.rs`, whose module they are.

use std::time::Duration;

use super::*;

#[test]
fn the_variable_holds_a_level() {
    for (text, limit) in [("off", LevelFilter::OFF), ("info", LevelFilter::INFO), (" DEBUG ", LevelFilter::DEBUG)] {
        assert_eq!(read(Some(OsStr::new(text))), (limit, None), "{text}");
    }
    assert_eq!([read(None), read(Some(OsStr::new("")))], [(LevelFilter::WARN, None), (LevelFilter::WARN, None)]);
}

#[test]
fn a_text_that_is_no_level_is_complained_of() {
    for text in ["verbose", "symmetra=info", "3"] {
        let (limit, complaint) = read(Some(OsStr::new(text)));
        let complaint = complaint.unwrap();
        assert_eq!(limit, LevelFilter::WARN);
        assert!(complaint.contains(&format!("SYMMETRA_LOG is \"{text}\"")) && complaint.contains("off, error, warn"));
    }
}

#[test]
fn a_line_has_its_time_and_its_process() {
    let line = Line { level: Level::WARN, origin: "symmetra::log", text: "a word" };
    let day = Duration::from_secs(86_400) * 20_000;
    let time = UNIX_EPOCH + day + Duration::from_millis(((23 * 60 + 5) * 60 + 9) * 1000 + 7);
    let process = std::process::id();
    assert_eq!(written(&line, time), format!("23:05:09.007Z WARN symmetra::log[{process}]: a word\n"));
}
