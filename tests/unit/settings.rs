//! Tests of `src/settings.rs`, whose module they are: the words of every setting, and settings in files.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{from_str, from_value, json, to_value};

use crate::environment::{Backend, EnvConfig, InitMethod, QuantisedAllReduce};
use crate::error::{Error, Result};
use crate::experts::{ExpertConfig, Layout, Method, Placement, Scales, Wire};
use crate::fused::{FusedOptions, Way};
use crate::group::{Config, Deadlines, Determinism, Multicast};
use crate::mixed::{Grid, MixedConfig, MixedMode, MixedOperation};
use crate::op::{Algorithm, AllReduceOptions, Codec, Narrow, ScaleLayout};
use crate::types::{Dtype, Reduction, Transport};

/// Each value is read back from its word, alone and in a file, and another word is an error that has them all.
fn words<T>(values: &[T])
where
    T: Copy + PartialEq + Debug + Display + FromStr<Err = Error> + Serialize + DeserializeOwned,
{
    let error = "nothing".parse::<T>().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    for value in values {
        let word = value.to_string();
        assert_eq!(word.parse::<T>(), Ok(*value));
        assert_eq!(to_value(value).unwrap(), json!(word));
        assert_eq!(from_value::<T>(json!(word)).unwrap(), *value);
        assert!(error.to_string().contains(&word), "{error} has no {word}");
    }
    let refused = from_value::<T>(json!("nothing")).unwrap_err();
    assert_eq!(refused.to_string(), error.to_string());
}

#[test]
fn every_setting_is_read_from_its_word() {
    words(&Dtype::ALL);
    words(&Reduction::ALL);
    words(&Transport::EVERY);
    words(&Determinism::ALL);
    words(&Multicast::ALL);
    words(&Algorithm::every().collect::<Vec<_>>());
    words(&Codec::ALL);
    words(&Narrow::ALL);
    words(&ScaleLayout::ALL);
    words(&Backend::ALL);
    words(&Way::ALL);
    words(&MixedOperation::ALL);
    words(&MixedMode::ALL);
    words(&[MixedMode::Auto]);
    words(&Method::ALL);
    words(&Scales::ALL);
    let wires =
        [Wire::Same, Wire::F8(Scales::F32), Wire::F8(Scales::PowersOfTwo), Wire::F8(Scales::E8M0), Wire::GivenF8];
    words(&wires);
    words(&[Layout::ByRank, Layout::BySource]);
}

fn text<T: Display + FromStr<Err = Error> + PartialEq + Debug>(value: T, written: &str) {
    assert_eq!(value.to_string(), written);
    assert_eq!(written.parse::<T>(), Ok(value));
}

fn refused<T: FromStr<Err = Error> + Debug>(written: &str, words: &str) {
    let error = written.parse::<T>().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains(words), "{error}");
}

#[test]
fn settings_with_numbers_are_read_from_their_text() -> Result<()> {
    text(Wire::Bytes(4096), "bytes:4096");
    text(Layout::ByExpert { align: 16 }, "by-expert:16");
    text(Layout::Padded { rows: 128 }, "padded:128");
    assert_eq!("f8".parse::<Wire>()?, Wire::F8(Scales::F32));
    assert_eq!("by-expert".parse::<Layout>()?, Layout::ByExpert { align: 1 });
    refused::<Wire>("bytes:-1", "the bytes of a row is `-1`, but it must be a number");
    refused::<Wire>("bytes", "it must be same, f8:f32");
    refused::<Wire>("same:", "it must be same, f8:f32");
    refused::<Wire>("f8:e4m3", "the scales is e4m3, but it must be one of f32, powers-of-two, e8m0");
    refused::<Layout>("padded", "it must be by-rank");
    refused::<Layout>("by-expert:x", "the alignment is `x`");
    Ok(())
}

/// Checks that settings are equal after writing and reading, and after reading from parts.
fn kept<T: Serialize + DeserializeOwned + Debug>(settings: &T) {
    let written = to_value(settings).unwrap();
    let read: T = from_value(written.clone()).unwrap();
    assert_eq!(format!("{read:?}"), format!("{settings:?}"), "{written}");
}

#[test]
fn settings_are_kept_in_files() {
    let config = Config::default()
        .deadlines(Deadlines::default().open(Duration::from_millis(1500)))
        .determinism(Determinism::Exact)
        .transport(Transport::Direct)
        .most_blocks(Some(4));
    kept(&config);
    kept(&AllReduceOptions::from(Codec::Int6).reduction(Reduction::Average));
    kept(&FusedOptions::default().way(Way::Pipeline).rows(Some(vec![3, 4])));
    kept(&MixedConfig::default().grid(Grid::default().local_tensor(Some(2))));
    let experts = ExpertConfig::new(8, 2, 64, 16).wire(Wire::F8(Scales::E8M0)).layout(Layout::Padded { rows: 32 });
    kept(
        &experts
            .clone()
            .placement(Placement::Table(vec![vec![0, 1], vec![2, 3]]))
            .determinism(Some(Determinism::Exact)),
    );
    kept(&experts.placement(Placement::RoundRobin));
    let environment = EnvConfig::default()
        .tensor_parallel_size(4)
        .init_method(InitMethod::Tcp("127.0.0.1:5000".to_owned()))
        .quantised(Some(QuantisedAllReduce::new(Codec::Fp8)))
        .communicator(config);
    kept(&environment);
}

#[test]
fn settings_of_a_file_may_be_few_and_must_be_known() {
    let config: Config = from_str(r#"{"deadlines": {"steady": 2.5}, "heap_bytes": 4096}"#).unwrap();
    let expected = Config::default().heap_bytes(4096);
    assert_eq!(config, expected.deadlines(Deadlines::default().steady(Duration::from_millis(2500))));
    let environment: EnvConfig =
        from_str(r#"{"init_method": "file:///run/ranks", "quantised": {"codec": "int4"}}"#).unwrap();
    assert_eq!(environment.init_method.to_string(), "file:///run/ranks");
    assert_eq!(environment.quantised, Some(QuantisedAllReduce::new(Codec::Int4)));
    let document = include_str!("../../docs/environment.md");
    let example = document.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let environment: EnvConfig = from_str(example).unwrap();
    assert_eq!(environment.tensor_parallel_size, 8);
    assert_eq!(environment.communicator.deadlines.steady, Duration::from_millis(2500));
    let refused = |text: &str, words: &str| {
        let error = from_str::<EnvConfig>(text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(r#"{"heap": 1}"#, "unknown field `heap`");
    refused(r#"{"communicator": {"heap": 1}}"#, "unknown field `heap`");
    refused(r#"{"communicator": {"determinism": "none"}}"#, "it must be one of free, per-run, per-algorithm, exact");
    refused(r#"{"communicator": {"deadlines": {"open": -1.0}}}"#, "negative");
    refused(r#"{"init_method": "udp://here"}"#, "it must be env://, tcp://host:port or file://path");
    let [first, _] = crate::bootstrap::Threads::new(2).unwrap().try_into().unwrap();
    let object = EnvConfig::default().init_method(InitMethod::bootstrap(first));
    let error = to_value(&object).unwrap_err().to_string();
    assert_eq!(error, "an init method that is an object has no text");
}
