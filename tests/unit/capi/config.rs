//! Tests of `src/capi/config.rs`, whose module they are.

use super::*;
use crate::error::Error;
use crate::types::Transport;

#[test]
fn settings_carry_every_default() {
    assert_eq!(Config::of_mirror(&settings_default()).unwrap(), Config::default());
}

#[test]
fn an_unknown_transport_is_refused() {
    let transport = Transport::EVERY.len() as u32;
    let error = Config::of_mirror(&Settings { transport, ..settings_default() }).unwrap_err();
    let message = format!("the number of a Transport is {transport}, but it must be less than {transport}");
    assert_eq!(error, Error::InvalidArgument { message });
}

#[test]
fn algorithms_are_numbered_as_the_header_says() {
    for number in 0..Algorithm::every().count() as u32 {
        assert_eq!(value::<Algorithm>(number).unwrap().mirror(), number);
    }
    assert!(value::<Algorithm>(Algorithm::every().count() as u32).is_err());
}
