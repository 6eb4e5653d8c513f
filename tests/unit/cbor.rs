use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use proptest::prelude::*;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};

use super::*;

fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
    decode(&encode("the value", value).unwrap()).unwrap_or_else(|error| panic!("{error}"))
}

fn hex(value: &impl Serialize) -> String {
    encode("the value", value).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn why<T: DeserializeOwned>(bytes: &[u8]) -> String {
    decode::<T>(bytes).map(drop).expect_err("it was read").to_string()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Kind {
    Unit,
    New(Option<Option<()>>),
    Tuple(i128, u128),
    Struct { at: IpAddr, kind: Option<Box<Kind>> },
}

/// Serde buffers these before it knows their type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Either {
    Whole(i64),
    Part(f64),
    Nested(Option<Option<u8>>),
    Kind(Kind),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flat {
    name: char,
    #[serde(flatten)]
    more: BTreeMap<String, Option<Option<f32>>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Tagged {
    Call { to: IpAddr, args: Vec<Option<()>> },
}

#[test]
fn values_arrive_as_they_were() {
    type Options = Vec<Option<Option<Option<()>>>>;
    let options: Options = vec![None, Some(None), Some(Some(None)), Some(Some(Some(())))];
    assert_eq!(again(&options), options);
    let units: Vec<Option<Unit>> = vec![None, Some(Unit)];
    assert_eq!(again(&units), units);
    let [v4, v6]: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap()];
    let kinds = vec![
        Kind::Unit,
        Kind::New(None),
        Kind::New(Some(None)),
        Kind::New(Some(Some(()))),
        Kind::Tuple(i128::MIN, u128::MAX),
        Kind::Tuple(-1 << 64, 1 << 64),
        Kind::Tuple((-1 << 64) - 1, 0),
        Kind::Tuple(i64::MIN.into(), u64::MAX.into()),
        Kind::Struct { at: v4, kind: Some(Box::new(Kind::Struct { at: v6, kind: None })) },
    ];
    assert_eq!(again(&kinds), kinds);
    let either = vec![
        Either::Whole(1),
        Either::Part(1.0),
        Either::Part(f64::NEG_INFINITY),
        Either::Nested(Some(None)),
        Either::Kind(Kind::Struct { at: v6, kind: None }),
    ];
    assert_eq!(again(&either), either);
    let more = [("a".to_owned(), Some(None)), ("b".to_owned(), None), ("c".to_owned(), Some(Some(f32::INFINITY)))];
    let flat = Flat { name: '\u{1f600}', more: more.into() };
    assert_eq!(again(&flat), flat);
    let tagged = Tagged::Call { to: v4, args: vec![None, Some(())] };
    assert_eq!(again(&tagged), tagged);
    let keys = BTreeMap::from([((1u8, Some(2i8)), [3u16; 2]), ((0, None), [0; 2])]);
    assert_eq!(again(&keys), keys);
    let keys: HashMap<Vec<bool>, String> = [(vec![true, false], "x".repeat(70_000)), (vec![], String::new())].into();
    assert_eq!(again(&keys), keys);
    let json = serde_json::json!({ "a": [1, -1, 1.0, u64::MAX, null, "x"], "b": {} });
    assert_eq!(again(&json), json);
}

#[test]
fn every_bit_of_a_float_arrives() {
    let narrow = [0x7f80_0001, 0xff80_0001, 0x7fc0_0000, 0x7fff_ffff, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 1];
    for bits in narrow {
        assert_eq!(again(&f32::from_bits(bits)).to_bits(), bits, "{bits:x}");
        assert_eq!(again(&Some(f32::from_bits(bits))).unwrap().to_bits(), bits, "{bits:x}");
    }
    for bits in [0x7ff0_0000_0000_0001, 0xfff8_0000_0000_0123, 0x7ff0_0000_0000_0000, 1 << 63, 1] {
        assert_eq!(again(&f64::from_bits(bits)).to_bits(), bits, "{bits:x}");
    }
}

/// Written as bytes, as `serde_bytes` does.
#[derive(Debug, PartialEq)]
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

/// Says another length than it has, or none.
struct Guess(Option<usize>, u8);

impl Serialize for Guess {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(self.0)?;
        (0..self.1).try_for_each(|number| map.serialize_entry(&number, &[number]))?;
        map.end()
    }
}

struct Run(Option<usize>);

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut run = serializer.serialize_seq(self.0)?;
        (0..3).try_for_each(|number| run.serialize_element(&Guess(self.0, number)))?;
        run.end()
    }
}

#[test]
fn bytes_and_lengths_that_are_guessed_arrive() {
    let bytes = vec![Bytes(vec![0, 255, 0xf6]), Bytes(Vec::new())];
    assert_eq!(again(&bytes), bytes);
    let expected: Vec<BTreeMap<u8, [u8; 1]>> =
        (0..3u8).map(|run| (0..run).map(|number| (number, [number])).collect()).collect();
    for guess in [None, Some(0), Some(1), Some(3), Some(1000)] {
        let bytes = encode("the value", &Run(guess)).unwrap();
        assert_eq!(decode::<Vec<BTreeMap<u8, [u8; 1]>>>(&bytes).ok(), Some(expected.clone()), "{guess:?}");
    }
}

/// By the examples of RFC 8949, appendix A.
#[test]
fn the_bytes_are_those_of_the_standard() {
    assert_eq!(hex(&(0, 23, 24, 1000, -1, -1000, u64::MAX)), "87001718181903e8203903e71bffffffffffffffff");
    assert_eq!(hex(&18_446_744_073_709_551_616u128), "c249010000000000000000");
    assert_eq!(hex(&-18_446_744_073_709_551_616i128), "3bffffffffffffffff");
    assert_eq!(hex(&-18_446_744_073_709_551_617i128), "c349010000000000000000");
    assert_eq!(hex(&(1.5f32, 1.1f64)), "82fa3fc00000fb3ff199999999999a");
    assert_eq!(hex(&(false, true, (), None::<u8>, "\u{6c34}", Bytes(vec![1, 2]))), "86f4f5f6f663e6b0b4420102");
    assert_eq!(hex(&(Some(None::<u8>), Some(Some(())))), "82da53594d42f6da53594d42da53594d42f6");
    assert_eq!(hex(&BTreeMap::from([("a", 1)])), "a1616101");
    assert_eq!(hex(&Kind::New(None)), "a1634e6577f6");
}

/// Encodings that libraries of other languages may write.
#[test]
fn other_forms_of_the_standard_are_read() {
    let read = |hex: &[u8]| decode::<(String, Vec<u8>, f64, Option<u8>)>(hex).ok();
    // Pieces of a string, an array without its length, half precision, undefined, and a tag.
    let bytes = b"\x84\x7f\x61a\x61b\xff\x9f\x01\x02\xff\xf9\x3c\x00\xf7";
    assert_eq!(read(bytes), Some(("ab".to_owned(), vec![1, 2], 1.0, None)));
    assert_eq!(decode::<u32>(b"\xc1\x1a\x51\x4b\x67\xb0").ok(), Some(1_363_896_240));
}

#[test]
fn what_is_no_value_is_refused() {
    assert!(why::<u8>(b"").contains("end early"));
    assert!(why::<String>(b"\x65ab").contains("end early"));
    assert!(why::<String>(b"\x62\xff\xff").contains("utf-8"));
    assert!(why::<u8>(b"\x01\x02").contains("1 bytes follow"));
    assert!(why::<(u8, u8)>(b"\x83\x01\x02\x03").contains("more than expected"));
    assert!(why::<u8>(b"\xff").contains("an end without a beginning"));
    assert!(
        why::<u128>(b"\xc2\x51\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
            .contains("17 bytes")
    );
    assert!(why::<Kind>(b"\x63New").contains("unit variant"));
    assert!(why::<Vec<u8>>(b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff").contains("end early"));
    // More levels than a value has, of every kind.
    for level in [&b"\x81"[..], b"\xa1\x01", b"\x9f", &SOME_BYTES] {
        let words = why::<serde::de::IgnoredAny>(&level.repeat(1_000_000));
        assert!(words.contains("more than 256 levels"), "{words}");
    }
    #[derive(Debug, Deserialize)]
    struct Endless(#[allow(dead_code)] Option<Box<Self>>);
    assert!(why::<Endless>(b"\x05").contains("more than 256 levels"));
}

#[test]
fn a_value_that_cannot_travel_names_its_place() {
    #[derive(Serialize)]
    struct Layer {
        next: Option<Box<Layer>>,
        names: BTreeMap<String, Vec<Part>>,
    }
    #[derive(Serialize)]
    enum Part {
        Sound(u8),
        Broken { inner: Broken },
    }
    struct Broken;
    impl Serialize for Broken {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("a lock was poisoned"))
        }
    }
    let names = BTreeMap::from([("w".to_owned(), vec![Part::Sound(1), Part::Broken { inner: Broken }])]);
    let layer = Layer { next: None, names };
    let error = encode("the object", &[layer]).unwrap_err().to_string();
    assert!(
        error.contains("the object is unfit at `[0].names[\"w\"][1].Broken.inner`, but a lock was poisoned"),
        "{error}"
    );

    let layer = |next| Layer { next, names: BTreeMap::new() };
    let chain = |layers| (1..layers).fold(layer(None), |next, _| layer(Some(Box::new(next))));
    encode("the object", &chain(128)).unwrap();
    let error = encode("the object", &chain(129)).unwrap_err().to_string();
    assert!(error.contains("257 levels deep at `.next.next") && error.contains("...`, but at most 256"), "{error}");
    assert!(error.len() < 300, "{error}");

    // A chain of options alone has levels too.
    #[derive(Serialize)]
    struct Chain(Option<Box<Self>>);
    let chain = (0..300).fold(Chain(None), |next, _| Chain(Some(Box::new(next))));
    assert!(encode("the object", &chain).unwrap_err().to_string().contains("257 levels"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode::<Vec<Either>>(&bytes).is_ok();
        let _ = decode::<Flat>(&bytes).is_ok();
        if let Ok(value) = decode::<serde_json::Value>(&bytes) {
            prop_assert_eq!(again(&value), value);
        }
    }

    #[test]
    fn random_values_arrive(
        value in any::<Vec<(Option<i128>, Option<Option<u32>>, String, BTreeMap<i16, Vec<u128>>)>>(),
    ) {
        prop_assert_eq!(again(&value), value);
    }
}
