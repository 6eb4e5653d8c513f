//! Tests of `src/group/identity.rs`, whose module they are.

use super::super::control_page::PageMapping;
use super::*;

#[test]
fn texts_keep_what_fits() {
    let page = PageMapping::create("test").unwrap();
    let text = &page.identity().name;
    assert_eq!(text.read(), "");
    for (written, kept) in [("tp", "tp"), ("", ""), ("8 bytes.", "8 bytes.")] {
        text.write(written);
        assert_eq!(text.read(), kept);
    }
    text.write(&"a".repeat(65));
    assert_eq!(text.read(), "a".repeat(64));
    // No part of a character.
    text.write(&format!("{}ü", "a".repeat(63)));
    assert_eq!(text.read(), "a".repeat(63));
}

#[test]
fn an_exchange_is_in_progress_from_its_beginning_to_its_end() {
    let page = PageMapping::create("test").unwrap();
    page.host_call.begin(4, "barrier");
    assert_eq!(page.host_call.begun.load(Ordering::Relaxed), 5);
    assert!(page.host_call.since_ns.load(Ordering::Relaxed) > 0);
    page.host_call.end();
    assert_eq!(page.host_call.since_ns.load(Ordering::Relaxed), 0);
}
