use super::*;

fn invalid<T>(result: Result<T>) {
    let Err(super::super::CommError(error)) = result else { panic!("the id was taken") };
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
}

#[test]
fn an_id_is_the_same_after_a_passage_as_bytes() {
    let id = Id::new().unwrap();
    let passed = Id::uninit(*id.internal());
    assert_eq!(passed.internal(), id.internal());
    assert_eq!(passed.take(1).unwrap().to_string(), id.text());
    assert_ne!(Id::new().unwrap().internal(), id.internal());
}

#[test]
fn the_process_that_made_an_id_takes_it_once_for_rank_0() {
    let id = Id::new().unwrap();
    assert_eq!(id.take(0).unwrap().to_string(), id.text());
    invalid(id.take(0));
    invalid(Id::uninit(id.internal().map(|byte| if byte == b'.' as c_char { b'1' as c_char } else { byte })).take(0));
}

#[test]
fn bytes_that_are_no_id_are_refused() {
    for bytes in [[0; BYTES], [b'x' as c_char; BYTES], [-1; BYTES]] {
        let id = Id::uninit(bytes);
        invalid(id.take(0));
        invalid(id.take(3));
        assert_eq!(format!("{id:?}"), "Id(malformed)");
    }
}

#[test]
fn debug_hides_the_secret() {
    let id = Id::new().unwrap();
    let text = id.text();
    let (address, secret) = text.split_once('/').unwrap();
    let shown = format!("{id:?}");
    assert!(shown.contains(address) && !shown.contains(secret), "{shown}");
}
