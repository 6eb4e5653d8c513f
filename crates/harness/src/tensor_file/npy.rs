//! NumPy's own format: one array a file.

use std::fs::File;
use std::io::{Read, Write};

use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, WriterBuilder};
use symmetra::Dtype;

use super::shown::shown;
use super::{FileHeader, FileLayout, FileTensor};

/// How every file begins.
const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header: NumPy reads no longer one either.
const MAX_HEADER_BYTES: usize = 10_000;
/// Most opening brackets: as many as a header of an array of numbers has. The time of the parser doubles with every
/// nested bracket.
const MAX_BRACKETS: usize = 2;

/// Reads a header and leaves the file where the elements begin.
pub(super) fn layout(file: &mut File) -> Result<FileLayout, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("it is no .npy file: {}", shown(&error.to_string()));
    let bytes = header_bytes(file).map_err(|error| wrong(&error))?;
    let header = NpyHeader::from_reader(&bytes[..]).map_err(|error| wrong(&error))?;
    let dtype = dtype(&header.dtype())?;
    // The order of an array of one dimension or fewer has no meaning.
    let fortran = header.order() == Order::Fortran && header.shape().len() > 1;
    let tensor = FileTensor::new("", dtype, header.shape().to_vec(), fortran)?;
    let start = bytes.len() as u64;
    Ok(FileLayout { header: FileHeader { tensors: vec![tensor], texts: None }, position: start, starts: vec![start] })
}

/// Everything before the elements, if the parser is sure to finish soon.
fn header_bytes(file: &mut File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut read = |more: usize| {
        let start = bytes.len();
        bytes.resize(start + more, 0);
        file.read_exact(&mut bytes[start..]).map_err(|error| error.to_string()).map(|()| bytes[start..].to_vec())
    };
    let begin = read(MAGIC.len() + 2)?;
    if !begin.starts_with(MAGIC) {
        return Err("it begins as something else".to_owned());
    }
    let length = match begin[MAGIC.len()] {
        1 => read(2)?,
        _ => read(4)?,
    };
    let length = length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
    if length > MAX_HEADER_BYTES {
        return Err(format!("its header has {length} bytes, but must have at most {MAX_HEADER_BYTES}"));
    }
    let brackets = read(length)?.iter().filter(|byte| b"([{".contains(byte)).count();
    if brackets > MAX_BRACKETS {
        return Err(format!(
            "its header has {brackets} opening brackets, but that of an array of numbers has {MAX_BRACKETS}"
        ));
    }
    Ok(bytes)
}

/// The types that both have, and their codes.
const TYPES: [(TypeChar, u64, Dtype, &str); 9] = [
    (TypeChar::Float, 4, Dtype::F32, "<f4"),
    (TypeChar::Float, 8, Dtype::F64, "<f8"),
    (TypeChar::Float, 2, Dtype::F16, "<f2"),
    (TypeChar::Int, 4, Dtype::I32, "<i4"),
    (TypeChar::Int, 8, Dtype::I64, "<i8"),
    (TypeChar::Int, 1, Dtype::I8, "|i1"),
    (TypeChar::Uint, 1, Dtype::U8, "|u1"),
    (TypeChar::Uint, 4, Dtype::U32, "<u4"),
    (TypeChar::Uint, 8, Dtype::U64, "<u8"),
];

fn dtype(dtype: &DType) -> Result<Dtype, String> {
    let descr = shown(&dtype.descr());
    let refused = format!("its elements are {descr}, but they must be f4, f8, f2, or i or u of 1, 4 or 8 bytes");
    let DType::Plain(plain) = dtype else { return Err(refused) };
    // How NumPy writes 8-bit floats of `ml_dtypes`.
    if plain.type_char() == TypeChar::RawData && plain.size_field() == 1 {
        return Err(format!(
            "{refused}. Store 8-bit floats as .safetensors: a .npy file does not state which format they have"
        ));
    }
    if plain.endianness() == Endianness::Big {
        return Err(format!("its elements are {descr}, big-endian: store them little-endian"));
    }
    let found = TYPES.iter().find(|(letter, size, ..)| (*letter, *size) == (plain.type_char(), plain.size_field()));
    found.map(|(_, _, dtype, _)| *dtype).ok_or(refused)
}

/// Writes everything before the elements.
pub(super) fn begin(file: &mut File, header: &FileHeader) -> Result<(), String> {
    let [tensor] = &header.tensors[..] else { return Err("a .npy file has one tensor".to_owned()) };
    let found = TYPES.iter().find(|(_, _, dtype, _)| *dtype == tensor.dtype);
    let code = found.map(|(.., code)| *code).ok_or_else(|| format!("the format has no {}", tensor.dtype))?;
    let code = code.parse().map_err(|error| format!("{code}: {error}"))?;
    let options = npyz::WriteOptions::new_header_only().dtype(DType::Plain(code)).shape(&tensor.shape);
    let options = options.order(if tensor.fortran { Order::Fortran } else { Order::C });
    options.writer(file).write_header_only().and_then(|file| file.flush()).map_err(|error| error.to_string())
}
