//! Tests of `src/backend/nccl_library.rs`, whose module they are.

use super::*;

#[test]
fn pitfall_36_the_variable_that_names_nccl_is_obeyed_or_named() {
    struct Set(&'static [&'static str]);
    impl Lookup for Set {
        fn get(&self, name: &'static str) -> Result<Option<String>> {
            Ok(self.0.contains(&name).then(|| format!("/nowhere/{name}")))
        }
    }
    let words = |set| named_library(&Set(set), DeviceKind::Cuda).map(drop).unwrap_err().to_string();
    for set in [&["SYMMETRA_NCCL_LIBRARY", "VLLM_NCCL_SO_PATH"][..], &["SYMMETRA_NCCL_LIBRARY"], &["VLLM_NCCL_SO_PATH"]]
    {
        let words = words(set);
        let (path, name) = (format!("/nowhere/{} cannot be loaded", set[0]), format!("({} names it)", set[0]));
        assert!(words.contains(&path) && words.ends_with(&name), "{words}");
    }
    // On a machine without NCCL the error names the search, and what may help.
    if let Err(error) = named_library(&Set(&[]), DeviceKind::Cuda) {
        let words = error.to_string();
        assert!(words.contains("no libnccl.so.2 or libnccl.so of a vendor"), "{words}");
        assert!(words.ends_with("(SYMMETRA_NCCL_LIBRARY or VLLM_NCCL_SO_PATH may name one)"), "{words}");
    }
}
