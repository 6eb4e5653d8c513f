//! `all-reduce --input`: all tensors of a file, and every reduction.

use half::bf16;
use serde_json::{Value, json};

use super::files::{Shards, npy, split_npy, split_safetensors};

/// A .safetensors file of these tensors: name, type, shape, elements.
fn file(texts: &Value, tensors: &[(&str, &str, Value, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (json!({"__metadata__": texts}), Vec::new());
    for (name, code, shape, elements) in tensors {
        let start = data.len();
        data.extend(elements);
        header[name] = json!({"dtype": code, "shape": shape, "data_offsets": [start, data.len()]});
    }
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn floats(values: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| bf16::from_f32(*value).to_bits().to_le_bytes()).collect()
}

fn integers(values: &[i64]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// The elements of a tensor in a file.
fn elements(file: &[u8], name: &str) -> Vec<u8> {
    let (header, data) = split_safetensors(file);
    let offset = |end: usize| header[name]["data_offsets"][end].as_u64().unwrap() as usize;
    data[offset(0)..offset(1)].to_vec()
}

/// Three tensors of a rank, of different types; odd ranks have another order.
fn rank(number: i64) -> Vec<u8> {
    let wide = number as f32;
    let mut tensors = [
        ("a", "BF16", json!([3]), halves(&[wide, -wide, 0.5])),
        ("b.weight", "F32", json!([2, 2]), floats(&[wide, 1.0, 2.0, -wide])),
        ("c", "I64", json!([]), integers(&[number - 7])),
        ("empty", "F32", json!([0, 9]), Vec::new()),
    ];
    if number % 2 == 1 {
        tensors.reverse();
    }
    file(&json!({"format": "pt", "rank": number.to_string()}), &tensors)
}

#[test]
fn all_tensors_of_a_file_and_the_metadata_of_rank_0() {
    for ranks_as in ["processes", "threads"] {
        let shards = Shards::new("safetensors", &[rank(0), rank(1), rank(2)]);
        let run = shards.reduce(&["--ranks-as", ranks_as]).ok();
        assert!(run.stderr.contains("the sum of 3 files, of 4 tensors each"), "{}", run.stderr);
        let sum = shards.sum();
        let (header, data) = split_safetensors(&sum);
        assert_eq!(header["__metadata__"], json!({"format": "pt", "rank": "0"}));
        assert_eq!(header.as_object().unwrap().len(), 5);
        assert_eq!(header["b.weight"]["shape"], json!([2, 2]));
        assert_eq!((sum.len() - data.len()) % 8, 0, "elements are aligned");
        assert_eq!(elements(&sum, "a"), halves(&[3.0, -3.0, 1.5]));
        assert_eq!(elements(&sum, "b.weight"), floats(&[3.0, 3.0, 6.0, -3.0]));
        assert_eq!(elements(&sum, "c"), integers(&[-18]));
        assert_eq!(data.len(), 6 + 16 + 8);
    }
}

#[test]
fn many_large_tensors_take_the_room_of_one() {
    let names: Vec<String> = (0..6).map(|number| format!("layer.{number}")).collect();
    let whole = |rank: usize| {
        let tensor = |(number, name)| {
            let values: Vec<f32> = (0..200_000).map(|index| (index % 1000 * (number + 1) + rank) as f32).collect();
            (name, "F32", json!([values.len()]), floats(&values))
        };
        file(&json!({}), &names.iter().map(String::as_str).enumerate().map(tensor).collect::<Vec<_>>())
    };
    let shards = Shards::new("safetensors", &[whole(0), whole(1)]);
    shards.reduce(&[]).ok();
    let sum = shards.sum();
    for (number, name) in names.iter().enumerate() {
        let expected: Vec<f32> = (0..200_000).map(|index| (index % 1000 * (number + 1) * 2 + 1) as f32).collect();
        assert!(elements(&sum, name) == floats(&expected), "{name}");
    }
}

#[test]
fn every_reduction_of_files() {
    for (op, a, b, c) in [
        ("prod", [0.0, 0.0, 0.125], [0.0, 1.0, 8.0, -0.0], -210),
        ("min", [0.0, -2.0, 0.5], [0.0, 1.0, 2.0, -2.0], -7),
        ("max", [2.0, 0.0, 0.5], [2.0, 1.0, 2.0, 0.0], -5),
        ("avg", [1.0, -1.0, 0.5], [1.0, 1.0, 2.0, -1.0], -6),
    ] {
        let shards = Shards::new("safetensors", &[rank(0), rank(1), rank(2)]);
        let run = shards.reduce(&["--op", op, "--ranks-as", "threads"]).ok();
        assert!(run.stderr.contains(&format!("the {op} of 3 files")), "{}", run.stderr);
        let values = |bytes: Vec<u8>| -> Vec<f32> {
            bytes.chunks_exact(4).map(|bits| f32::from_le_bytes(bits.try_into().unwrap())).collect()
        };
        let sum = shards.sum();
        assert_eq!(values(elements(&sum, "b.weight")), b, "{op}");
        let narrow = elements(&sum, "a");
        let narrow: Vec<f32> =
            narrow.chunks_exact(2).map(|bits| bf16::from_le_bytes([bits[0], bits[1]]).to_f32()).collect();
        assert_eq!(narrow, a, "{op}");
        assert_eq!(elements(&sum, "c"), integers(&[c]), "{op}");
    }
    let array = |value: i32| npy("<i4", false, "()", &value.to_le_bytes());
    let shards = Shards::new("npy", &[array(-3), array(5)]);
    shards.reduce(&["--op", "max"]).ok();
    assert_eq!(split_npy(&shards.sum()).1, 5i32.to_le_bytes());
    shards.reduce(&["--algorithm", "one-shot-sentinel"]).refused(2, &["floating types only, not i32"]);
}

#[test]
fn files_whose_tensors_differ() {
    let tensor = |name| (name, "F32", json!([1]), floats(&[1.0]));
    let texts = json!({});
    let refused = |files: &[Vec<u8>], words: &[&str]| {
        let shards = Shards::new("safetensors", files);
        shards.reduce(&[]).refused(1, words);
        shards.no_output();
    };
    let both = file(&texts, &[tensor("w"), tensor("x")]);
    refused(&[both.clone(), file(&texts, &[tensor("w")])], &["ranks 0 and 1", "has `x` f32 [1]", "has no `x`"]);
    refused(&[file(&texts, &[tensor("w")]), both.clone()], &["has no `x`, but", "shard-1.safetensors has `x` f32 [1]"]);
    let longer = file(&texts, &[tensor("w"), ("x", "F32", json!([2]), floats(&[1.0; 2]))]);
    refused(&[both.clone(), both.clone(), longer], &["ranks 0 and 2", "`x` f32 [1]", "`x` f32 [2]"]);
    refused(&[file(&texts, &[])], &["it has no tensors"]);
    let mask = file(&texts, &[tensor("w"), ("mask", "BOOL", json!([1]), vec![1]), tensor("x")]);
    refused(std::slice::from_ref(&mask), &["tensor `mask`", "BOOL", "--tensor: it has `w`, `x`"]);
    // A tensor that cannot be reduced does not matter where another tensor is requested.
    let shards = Shards::new("safetensors", &[mask.clone(), mask]);
    shards.reduce(&["--tensor", "w"]).ok();
    assert_eq!(elements(&shards.sum(), "w"), floats(&[2.0]));
}
