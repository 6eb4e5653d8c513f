//! Tests of `src/group/multicast.rs`, whose module they are.

use super::*;

/// An environment in which one variable may be set.
struct Set(Option<&'static str>);

impl Lookup for Set {
    fn get(&self, name: &'static str) -> Result<Option<String>> {
        Ok(self.0.filter(|_| name == "SYMMETRA_MULTICAST").map(str::to_owned))
    }
}

#[test]
fn on_gpus_the_variable_decides() {
    let refused = |value| Multicast::Require.check(DeviceKind::Cuda, 4, &Set(value)).is_err();
    assert!(refused(None) && refused(Some("0")) && refused(Some("yes")));
    assert_eq!(refused(Some("1")), !cfg!(feature = "multicast"));
    assert_eq!(Multicast::Try.check(DeviceKind::Cuda, 4, &Set(None)), Ok(()));
    let why = Multicast::Try.refusal(DeviceKind::Cuda, 4, &Set(None)).unwrap().unwrap();
    let named = if cfg!(feature = "multicast") { "SYMMETRA_MULTICAST" } else { "without the feature `multicast`" };
    assert!(why.contains(named), "{why}");
    assert!(Multicast::Try.refusal(DeviceKind::Hip, 4, &Set(Some("1"))).unwrap().is_some());
    let host = Multicast::Require.refusal(DeviceKind::Host, 4, &Set(None)).unwrap();
    assert_eq!(host.is_none(), cfg!(feature = "multicast"));
}
