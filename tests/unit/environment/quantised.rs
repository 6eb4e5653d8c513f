//! Tests of `src/environment/quantised.rs`, whose module they are.

use super::*;

struct Set(&'static [(&'static str, &'static str)]);

impl Lookup for Set {
    fn get(&self, name: &'static str) -> Result<Option<String>> {
        Ok(self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }
}

const REGIME: &str = "AITER_QUICK_REDUCE_QUANTIZATION";
const MOST: &str = "AITER_QUICK_REDUCE_MAX_SIZE_BYTES_MB";

fn found(
    set: Option<QuantisedAllReduce>,
    variables: &'static [(&'static str, &'static str)],
) -> (String, SettingSource) {
    let (setting, source) = resolve(set, &Set(variables)).unwrap();
    (shown(setting), source)
}

#[test]
fn variables_set_what_the_program_leaves_unset() {
    assert_eq!(found(None, &[]), ("off".to_owned(), SettingSource::Default));
    for (variables, words) in [
        (&[(REGIME, "FP8")] as &[_], "fp8 from 2097152 bytes"),
        (&[(REGIME, "INT8"), (MOST, "0")], "int8 from 2097152 bytes"),
        (&[(REGIME, " INT6 "), (MOST, "16")], "int6 from 2097152 to 16777216 bytes"),
        (&[(REGIME, "INT4"), (MOST, "4")], "int4 from 2097152 to 4194304 bytes"),
        (&[(REGIME, "NONE")], "off"),
        (&[(REGIME, "FP"), (MOST, "1")], "off"),
    ] {
        assert_eq!(found(None, variables), (words.to_owned(), SettingSource::Variable(REGIME)), "{variables:?}");
    }
    let set = |codec| Some(QuantisedAllReduce { min_bytes: Some(0), ..QuantisedAllReduce::new(codec) });
    assert_eq!(
        found(set(Codec::Int4), &[(REGIME, "FP8"), (MOST, "x")]),
        ("int4 from 0 bytes".to_owned(), SettingSource::Program)
    );
    assert_eq!(found(set(Codec::None), &[(REGIME, "FP8")]), ("off".to_owned(), SettingSource::Program));
}

#[test]
fn pitfall_36_what_is_unknown_or_out_of_order_is_refused() {
    let refused = |set, variables: &'static [(&'static str, &'static str)], words: &[&str]| {
        let error = resolve(set, &Set(variables)).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    for regime in ["INT3", "int8", ""] {
        let variables: &'static [(&'static str, &'static str)] = Box::leak(Box::new([(REGIME, regime)]));
        refused(None, variables, &[REGIME, &format!("`{regime}`"), "NONE, FP, FP8, INT8, INT6, INT4"]);
    }
    // A tuning may begin below the usual smallest message.
    resolve(None, &Set(&[(REGIME, "INT8"), (MOST, "1")])).unwrap();
    refused(None, &[(REGIME, "INT8"), (MOST, "many")], &[MOST, "`many`"]);
    refused(None, &[(REGIME, "INT8"), (MOST, "18446744073709551615")], &[MOST, "64 bits"]);
    let set = QuantisedAllReduce { min_bytes: Some(9), max_bytes: Some(8), ..QuantisedAllReduce::new(Codec::Fp8) };
    refused(Some(set), &[], &["9 to 8 bytes"]);
}
