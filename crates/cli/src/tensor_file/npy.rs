//! NumPy's own format: one array a file.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, WriterBuilder};
use symmetra::Dtype;

use super::Header;

/// Reads a header and leaves the file where the elements begin.
pub(super) fn header(file: &mut File) -> Result<Header, String> {
    let header = NpyHeader::from_reader(file).map_err(|error| format!("it is no .npy file: {error}"))?;
    let dtype = dtype(&header.dtype())?;
    // Of arrays of one dimension or fewer the order says nothing.
    let fortran = header.order() == Order::Fortran && header.shape().len() > 1;
    Header::new(dtype, header.shape().to_vec(), fortran)
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
    let shown = dtype.descr();
    let refused = format!("its elements are {shown}, but they must be f4, f8, f2, or i or u of 1, 4 or 8 bytes");
    let DType::Plain(plain) = dtype else { return Err(refused) };
    if plain.endianness() == Endianness::Big {
        return Err(format!("its elements are {shown}, big-endian: store them little-endian"));
    }
    let found = TYPES.iter().find(|(letter, size, ..)| (*letter, *size) == (plain.type_char(), plain.size_field()));
    found.map(|(_, _, dtype, _)| *dtype).ok_or(refused)
}

pub(super) fn write(path: &Path, header: &Header, bytes: &[u8]) -> Result<(), String> {
    let found = TYPES.iter().find(|(_, _, dtype, _)| *dtype == header.dtype);
    let code = found.map(|(.., code)| *code).ok_or_else(|| format!("the format has no {}", header.dtype))?;
    let code = code.parse().map_err(|error| format!("{code}: {error}"))?;
    let io = |error: std::io::Error| error.to_string();
    let file = File::create(path).map_err(io)?;
    let options = npyz::WriteOptions::new_header_only().dtype(DType::Plain(code)).shape(&header.shape);
    let options = options.order(if header.fortran { Order::Fortran } else { Order::C });
    let mut file = options.writer(file).write_header_only().map_err(io)?;
    file.write_all(bytes).map_err(io)
}
