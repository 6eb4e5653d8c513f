use super::*;

#[test]
fn operators_are_the_reductions_of_the_same_meaning() {
    let all = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
    assert_eq!(all.map(Reduction::from), Reduction::ALL);
}

#[test]
fn an_error_is_symmetras_with_the_same_words() {
    let error = Error::invalid("root", 7, "the world size is 2");
    let wrapped = CommError::from(error.clone());
    assert_eq!(wrapped.to_string(), error.to_string());
    assert_eq!(std::error::Error::source(&wrapped).unwrap().to_string(), error.to_string());
    assert_eq!(Error::from(wrapped), error);
}

fn shared<T: Send + Sync>() {}

#[test]
fn a_communicator_is_send_and_sync() {
    shared::<Comm>();
    shared::<CommError>();
}

#[test]
fn a_group_of_the_free_functions_ends_once() {
    assert!(group_end().is_err());
    group_start().unwrap();
    group_start().unwrap();
    assert!(group::refuse_within("a send").unwrap_err().to_string().contains("Comm::group"));
    group_end().unwrap();
    group_end().unwrap();
    group::refuse_within("a send").unwrap();
    assert!(group_end().is_err());
}
