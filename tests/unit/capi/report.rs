//! Tests of `src/capi/report.rs`, whose module they are.

use super::*;

fn text(result: Result<(), Report>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_panic_becomes_an_internal_error() {
    assert_eq!(text(guard(|| panic!("on {}", 1))), "0|0|-1|internal error: panicked: on 1");
    assert_eq!(text(guard(|| std::panic::panic_any(7))), "0|0|-1|internal error: panicked: without words");
}

#[test]
fn an_error_keeps_kind_code_and_rank() {
    let lost = Error::PeerLost { rank: 3, detail: String::new() };
    assert_eq!(text(guard(|| Err(lost))), "8|0|3|rank 3 is gone");
    let system = Error::System { errno: 2, message: "open a|b".to_owned() };
    assert_eq!(text(guard(|| Err(system))), "5|2|-1|system error 2: open a|b");
    assert_eq!(text(guard(|| Err(Error::bootstrap("as thrown")))), "6|0|-1|as thrown");
    let routing = Error::Routing { rank: 1, token: 4, expert: 9, experts: 8 };
    let words = "14|0|1|token 4 of rank 1 goes to expert 9, but there are 8";
    assert_eq!(text(guard(|| Err(routing))), words);
    let capacity = Error::Capacity { rank: 2, rows: 9, capacity: 8 };
    assert_eq!(text(guard(|| Err(capacity))), "15|0|2|rank 2 would receive 9 rows, but has capacity for 8");
}
