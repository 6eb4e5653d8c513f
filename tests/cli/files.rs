//! `all-reduce --input`: one tensor a file, read and written here by hand.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use super::{Run, command, pid, symmetra_with, wait_until};

/// A .npy file of version 1.
pub(super) fn npy(code: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{code}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// A .npy file's header and data.
pub(super) fn split_npy(file: &[u8]) -> (String, &[u8]) {
    assert_eq!(&file[..6], b"\x93NUMPY");
    let (length, start) = match file[6] {
        1 => (u16::from_le_bytes(file[8..10].try_into().unwrap()) as usize, 10),
        _ => (u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize, 12),
    };
    let header = String::from_utf8(file[start..start + length].to_vec()).unwrap();
    (header.replace(", )", ")"), &file[start + length..])
}

/// A .safetensors file of two tensors: one of no interest, and `weight`.
pub(super) fn safetensors(code: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let end = data.len() + 2;
    let header = format!(
        "{{\"__metadata__\":{{\"format\":\"pt\"}},\"bias\":{{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}},\
         \"weight\":{{\"dtype\":\"{code}\",\"shape\":{shape},\"data_offsets\":[2,{end}]}}}}"
    );
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend([1, 2]);
    file.extend(data);
    file
}

/// The header of the only tensor in a file, and its data.
pub(super) fn split_safetensors(file: &[u8]) -> (serde_json::Value, &[u8]) {
    let (length, rest) = file.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    (serde_json::from_slice(header).unwrap(), data)
}

/// The files of ranks, and a place for the result.
pub(super) struct Shards {
    pub(super) directory: TempDir,
    extension: &'static str,
}

impl Shards {
    pub(super) fn new(extension: &'static str, files: &[Vec<u8>]) -> Self {
        let shards = Self { directory: tempfile::tempdir().unwrap(), extension };
        for (rank, file) in files.iter().enumerate() {
            fs::write(shards.path(&rank.to_string()), file).unwrap();
        }
        shards
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("shard-{name}.{}", self.extension))
    }

    pub(super) fn reduce(&self, more: &[&str]) -> Run {
        self.reduce_into(&self.path("sum"), more)
    }

    pub(super) fn reduce_into(&self, output: &Path, more: &[&str]) -> Run {
        let (input, output) = (self.path("{rank}").display().to_string(), output.display().to_string());
        let mut args = vec!["all-reduce", "--device", "host", "--input", &input, "--output", &output];
        args.extend(more);
        symmetra_with(&args)
    }

    pub(super) fn sum(&self) -> Vec<u8> {
        fs::read(self.path("sum")).unwrap()
    }

    /// Nothing but the inputs is there.
    pub(super) fn no_output(&self) {
        let names =
            fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let others: Vec<String> =
            names.filter(|name| !name[6..7].chars().all(|letter| letter.is_ascii_digit())).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

#[test]
fn a_gap_in_the_shards_is_no_end() {
    let file = npy("<i4", false, "(1,)", &7i32.to_le_bytes());
    let shards = Shards::new("npy", &[file.clone(), file.clone(), file.clone(), file]);
    fs::remove_file(shards.path("2")).unwrap();
    shards.reduce(&[]).refused(1, &["shard-3.npy, but no ", "shard-2.npy", "--ranks takes the first"]);
    shards.no_output();
    shards.reduce(&["--ranks", "2"]).ok();
    assert_eq!(split_npy(&shards.sum()).1, 14i32.to_le_bytes());
}

/// Numbers of no pattern: the same for the same rank.
fn noise(rank: usize, count: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(rank as u64 + 1);
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
    .take(count)
}

/// In -8..8, of any precision.
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 49) as f64 - 8.0
}

/// Sums in rank order with `add`, which starts from rank 0's element.
fn total<T: Copy>(ranks: &[Vec<T>], add: impl Fn(T, T) -> T) -> Vec<T> {
    (0..ranks[0].len()).map(|item| ranks.iter().map(|rank| rank[item]).reduce(&add).unwrap()).collect()
}

/// Reduces tensors of 4 ranks and checks header and bytes of the sum, as processes and threads.
fn round_trip<T: bytemuck::Pod>(code: &str, values: impl Fn(u64) -> T, sum: impl Fn(&[Vec<T>]) -> Vec<T>) {
    let ranks: Vec<Vec<T>> = (0..4).map(|rank| noise(rank, 7 * 143).map(&values).collect()).collect();
    let files: Vec<_> = ranks.iter().map(|rank| npy(code, false, "(7, 143)", bytemuck::cast_slice(rank))).collect();
    let shards = Shards::new("npy", &files);
    for ranks_as in ["processes", "threads"] {
        let run = shards.reduce(&["--ranks-as", ranks_as]).ok();
        assert_eq!(run.stdout, "");
        let file = shards.sum();
        let (header, data) = split_npy(&file);
        assert!(
            header.contains(&format!("'{code}'")) && header.contains("False") && header.contains("(7, 143)"),
            "{header}"
        );
        assert_eq!(data, bytemuck::cast_slice::<T, u8>(&sum(&ranks)), "{code} as {ranks_as}");
    }
}

#[test]
fn integers_bit_for_bit() {
    round_trip("<i4", |bits| bits as i32, |ranks| total(ranks, i32::wrapping_add));
    round_trip("<i8", |bits| bits as i64, |ranks| total(ranks, i64::wrapping_add));
    round_trip("|i1", |bits| bits as i8, |ranks| total(ranks, i8::wrapping_add));
    round_trip("|u1", |bits| bits as u8, |ranks| total(ranks, u8::wrapping_add));
    round_trip("<u4", |bits| bits as u32, |ranks| total(ranks, u32::wrapping_add));
    round_trip("<u8", |bits| bits, |ranks| total(ranks, u64::wrapping_add));
}

#[test]
fn floats_in_rank_order() {
    round_trip("<f4", |bits| fraction(bits) as f32, |ranks| total(ranks, |sum, value| sum + value));
    round_trip("<f8", fraction, |ranks| total(ranks, |sum, value| sum + value));
    round_trip(
        "<f2",
        |bits| f16::from_f64(fraction(bits)),
        |ranks: &[Vec<f16>]| {
            let wide: Vec<Vec<f32>> =
                ranks.iter().map(|rank| rank.iter().map(|value| value.to_f32()).collect()).collect();
            total(&wide, |sum, value| sum + value).into_iter().map(f16::from_f32).collect()
        },
    );
}

#[test]
fn a_sum_of_f32_is_the_exact_sum_to_one_rounding_a_step() {
    let ranks: Vec<Vec<f32>> =
        (0..4).map(|rank| noise(rank, 999).map(|bits| fraction(bits) as f32).collect()).collect();
    let files: Vec<_> = ranks.iter().map(|rank| npy("<f4", false, "(999,)", bytemuck::cast_slice(rank))).collect();
    let shards = Shards::new("npy", &files);
    shards.reduce(&[]).ok();
    let file = shards.sum();
    let sums: Vec<f32> =
        split_npy(&file).1.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    for (item, sum) in sums.iter().enumerate() {
        let exact: f64 = ranks.iter().map(|rank| f64::from(rank[item])).sum();
        let size: f64 = ranks.iter().map(|rank| f64::from(rank[item].abs())).sum();
        // Three additions, each rounded to half a unit of at most `size`.
        assert!((f64::from(*sum) - exact).abs() <= 3.0 * size * f64::from(f32::EPSILON) / 2.0, "{item}: {sum} {exact}");
    }
}

#[test]
fn a_tensor_of_a_safetensors_file() {
    let ranks: Vec<Vec<bf16>> =
        (0..3).map(|rank| noise(rank, 60).map(|bits| bf16::from_f64(fraction(bits))).collect()).collect();
    let files: Vec<_> = ranks.iter().map(|rank| safetensors("BF16", "[3,4,5]", bytemuck::cast_slice(rank))).collect();
    let shards = Shards::new("safetensors", &files);
    shards.reduce(&["--tensor", "weight"]).ok();
    let file = shards.sum();
    let (header, data) = split_safetensors(&file);
    assert_eq!(header["weight"]["dtype"], "BF16");
    assert_eq!(header["weight"]["shape"], serde_json::json!([3, 4, 5]));
    assert_eq!(header["weight"]["data_offsets"], serde_json::json!([0, 120]));
    assert!(header.get("bias").is_none(), "{header}");
    assert_eq!(header["__metadata__"], serde_json::json!({"format": "pt"}));
    let wide: Vec<Vec<f32>> = ranks.iter().map(|rank| rank.iter().map(|value| value.to_f32()).collect()).collect();
    let sum: Vec<bf16> = total(&wide, |sum, value| sum + value).into_iter().map(bf16::from_f32).collect();
    assert_eq!(data, bytemuck::cast_slice::<bf16, u8>(&sum));
}

#[test]
fn every_type_of_safetensors() {
    for (code, one, two) in [
        ("F32", 1f32.to_le_bytes().to_vec(), 2f32.to_le_bytes().to_vec()),
        ("F64", 1f64.to_le_bytes().to_vec(), 2f64.to_le_bytes().to_vec()),
        ("F16", f16::ONE.to_le_bytes().to_vec(), f16::from_f32(2.0).to_le_bytes().to_vec()),
        ("I32", 1i32.to_le_bytes().to_vec(), 2i32.to_le_bytes().to_vec()),
        ("I64", 1i64.to_le_bytes().to_vec(), 2i64.to_le_bytes().to_vec()),
        ("I8", vec![1], vec![2]),
        ("U8", vec![200], vec![144]),
        ("U32", u32::MAX.to_le_bytes().to_vec(), (u32::MAX - 1).to_le_bytes().to_vec()),
        ("F8_E4M3", vec![0x7C, 0xB8], vec![0x7E, 0xC0]), // 384 and -1: saturated, and -2
        ("F8_E5M2", vec![0x7B, 0x3C], vec![0x7B, 0x40]), // 57344 and 1
        ("U64", 1u64.to_le_bytes().to_vec(), 2u64.to_le_bytes().to_vec()),
    ] {
        let shape = if code.starts_with("F8") { "[2]" } else { "[]" };
        let shards = Shards::new("safetensors", &[safetensors(code, shape, &one), safetensors(code, shape, &one)]);
        shards.reduce(&["--tensor", "weight", "--ranks-as", "threads"]).ok();
        assert_eq!(split_safetensors(&shards.sum()).1, two, "{code}");
    }
}

#[test]
fn scalars_empty_tensors_and_one_rank() {
    let scalar = |value: i32| npy("<i4", false, "()", &value.to_le_bytes());
    let shards = Shards::new("npy", &[scalar(40), scalar(2)]);
    shards.reduce(&[]).ok();
    let file = shards.sum();
    let (header, data) = split_npy(&file);
    assert!(header.contains("()"), "{header}");
    assert_eq!(data, 42i32.to_le_bytes());
    // Only as many as requested; an existing output is replaced.
    shards.reduce(&["--ranks", "1"]).ok();
    assert_eq!(split_npy(&shards.sum()).1, 40i32.to_le_bytes());

    let shards = Shards::new("npy", &[npy("<f4", false, "(0, 3)", &[]), npy("<f4", false, "(0, 3)", &[])]);
    shards.reduce(&[]).ok();
    let file = shards.sum();
    let (header, data) = split_npy(&file);
    assert!(header.contains("(0, 3)") && data.is_empty(), "{header}");
}

#[test]
fn fortran_order_is_kept() {
    let values = |start: i64| bytemuck::cast_slice::<i64, u8>(&(start..start + 6).collect::<Vec<_>>()).to_vec();
    let shards = Shards::new("npy", &[npy("<i8", true, "(2, 3)", &values(0)), npy("<i8", true, "(2, 3)", &values(10))]);
    shards.reduce(&[]).ok();
    let file = shards.sum();
    let (header, data) = split_npy(&file);
    assert!(header.contains("True"), "{header}");
    assert_eq!(data, bytemuck::cast_slice::<i64, u8>(&[10, 12, 14, 16, 18, 20]));
    let mixed = Shards::new("npy", &[npy("<i8", true, "(2, 3)", &values(0)), npy("<i8", false, "(2, 3)", &values(0))]);
    mixed.reduce(&[]).refused(1, &["ranks 0 and 1", "Fortran order"]);
}

#[test]
fn ranks_that_differ_are_named_with_their_shapes_and_types() {
    let zeros = [0; 64];
    let same = npy("<f4", false, "(4, 3)", &zeros[..48]);
    let shards = Shards::new("npy", &[same.clone(), same.clone(), npy("<f4", false, "(3, 4)", &zeros[..48])]);
    shards.reduce(&[]).refused(1, &["ranks 0 and 2", "[4, 3]", "[3, 4]", "shard-2.npy"]);
    shards.no_output();
    let shards = Shards::new("npy", &[same.clone(), npy("<i4", false, "(4, 3)", &zeros[..48])]);
    shards.reduce(&[]).refused(1, &["ranks 0 and 1", "f32 [4, 3]", "i32 [4, 3]"]);
    shards.no_output();
}

#[test]
fn files_that_cannot_be_summed() {
    let refused = |file: Vec<u8>, words: &[&str]| {
        let shards = Shards::new("npy", &[file.clone(), file]);
        shards.reduce(&[]).refused(1, words);
        shards.no_output();
    };
    refused(npy(">f4", false, "(2,)", &[0; 8]), &["shard-0.npy", "big-endian"]);
    refused(npy("<u2", false, "(4,)", &[0; 8]), &["shard-0.npy", "<u2"]);
    // 8-bit floats of `ml_dtypes`.
    refused(npy("|V1", false, "(8,)", &[0; 8]), &["|V1", ".safetensors"]);
    refused(npy("<f1", false, "(8,)", &[0; 8]), &["'<f1' has invalid size"]);
    refused(npy("<c8", false, "(1,)", &[0; 8]), &["<c8"]);
    refused(npy("<f4", false, "(2,)", &[0; 7]), &["shard-", "f32 [2]"]);
    refused(npy("<f4", false, "(4294967296, 1024)", &[]), &["1 TiB"]);
    refused(npy("<f4", false, "(9223372036854775807, 4, 0)", &[]), &["1 TiB"]);
    refused(b"not a tensor".to_vec(), &["shard-0.npy", ".npy file"]);

    let shards = Shards::new("safetensors", &[safetensors("U16", "[1]", &[0; 2])]);
    shards.reduce(&["--tensor", "weight"]).refused(1, &["U16", "BF16"]);
    shards.reduce(&["--tensor", "weights"]).refused(1, &["`weights`", "`bias`, `weight`"]);
    shards.reduce(&[]).refused(1, &["`weight`", "U16", "--tensor: it has `bias`"]);
    let shards = Shards::new("safetensors", &[b"\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()]);
    shards.reduce(&["--tensor", "weight"]).refused(1, &["shard-0.safetensors"]);
}

#[test]
fn what_a_link_leads_to_is_replaced() {
    let shards = Shards::new("npy", &[npy("<i4", false, "()", &40i32.to_le_bytes())]);
    symlink("shard-sum.npy", shards.path("link")).unwrap();
    for old in ["an old sum", "an older one"] {
        shards.reduce_into(&shards.path("link"), &[]).ok();
        assert_eq!(fs::read_link(shards.path("link")).unwrap().to_str(), Some("shard-sum.npy"));
        assert_eq!(split_npy(&shards.sum()).1, 40i32.to_le_bytes());
        fs::write(shards.path("sum"), old).unwrap();
    }
    fs::remove_file(shards.path("link")).unwrap();
    symlink("/dev/null", shards.path("link")).unwrap();
    shards.reduce_into(&shards.path("link"), &[]).refused(2, &["--output: cannot write", "no regular file"]);
    assert!(shards.path("link").is_symlink());
}

#[test]
fn an_end_by_a_signal_leaves_nothing() {
    for ranks_as in ["processes", "threads"] {
        let shards = Shards::new("npy", &[]);
        let input = shards.path("0");
        mknodat(CWD, &input, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut run = command(["all-reduce", "--device", "host", "--ranks-as", ranks_as, "--input"]);
        let mut run = run.arg(shards.path("{rank}")).arg("--output").arg(shards.path("sum")).spawn().unwrap();
        // For the command, which reads the header; the rank waits for more from a writer that stays silent.
        let mut writer = fs::File::options().write(true).open(&input).unwrap();
        writer.write_all(&npy("<i4", false, "()", &[])).unwrap();
        wait_until("the start of the sum", || fs::read_dir(shards.directory.path()).unwrap().count() == 2);
        kill_process(pid(&run), Signal::TERM).unwrap();
        assert_eq!(run.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        shards.no_output();
    }
}

/// The command read the header and the rank opened the pipe again, which waits for another writer.
#[test]
fn inputs_that_are_pipes_are_read_once() {
    let array = |values: [i32; 2]| npy("<i4", false, "(2,)", bytemuck::cast_slice(&values));
    for ranks_as in ["processes", "threads"] {
        let shards = Shards::new("npy", &[]);
        let mut writers = Vec::new();
        for (rank, file) in [array([1, 2]), array([40, 50])].into_iter().enumerate() {
            let path = shards.path(&rank.to_string());
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            // Ends at once: what it wrote waits in the pipe.
            writers.push(std::thread::spawn(move || fs::write(path, file).unwrap()));
        }
        shards.reduce(&["--ranks-as", ranks_as]).ok();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(split_npy(&shards.sum()).1, bytemuck::cast_slice::<i32, u8>(&[41, 52]));
    }
}

#[test]
fn paths_that_cannot_be() {
    let file = npy("<f4", false, "(2,)", &[0; 8]);
    let shards = Shards::new("npy", &[file.clone(), file.clone()]);
    shards.reduce(&["--ranks", "3"]).refused(1, &["shard-2.npy", "No such file"]);
    shards.reduce(&["--tensor", "weight"]).refused(2, &["--tensor"]);
    shards.reduce_into(&shards.path("1"), &[]).refused(2, &["input of rank 1"]);
    assert_eq!(fs::read(shards.path("1")).unwrap(), file);
    shards.reduce_into(&shards.path("{rank}"), &[]).refused(2, &["one file"]);
    shards.reduce_into(Path::new("sum.safetensors"), &[]).refused(2, &[".npy"]);
    shards.reduce_into(&shards.directory.path().join("no/sum.npy"), &[]).refused(1, &["No such file"]);
    shards.no_output();
    let all = |input: &str| symmetra_with(&["all-reduce", "--input", input, "--output", "sum.npy"]);
    all("shard.npy").refused(2, &["{rank}"]);
    all("shard-{rank}.txt").refused(2, &[".npy or .safetensors"]);
    all("/nonexistent/shard-{rank}.npy").refused(1, &["/nonexistent/shard-0.npy"]);
}
