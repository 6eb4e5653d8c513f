//! Both ways lead to what Rust calls directly.

#[test]
fn by_a_bridge() {
    assert_eq!(dependent::bridge::reduced(2.5).unwrap(), 2.5);
}

#[test]
fn by_c() {
    let config = symmetra::Config::default();
    assert_eq!(symmetra::required_bytes(8, &config), Ok(dependent::plain_required_bytes(8)));
}
