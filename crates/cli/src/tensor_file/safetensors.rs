//! The safetensors format: many tensors a file, each with a name.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use safetensors::tensor::{Metadata, TensorView};
use symmetra::Dtype;

use super::Header;

/// Longest header that the format allows.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Reads the header of one tensor and leaves the file where its elements begin.
pub(super) fn header(file: &mut File, tensor: &str) -> Result<Header, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("it is no .safetensors file: {error}");
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).map_err(|error| wrong(&error))?;
    let header_bytes = u64::from_le_bytes(prefix);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(wrong(&format!("its header would have {header_bytes} bytes")));
    }
    let mut text = vec![0; header_bytes as usize];
    file.read_exact(&mut text).map_err(|error| wrong(&error))?;
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    let info = metadata.info(tensor).ok_or_else(|| {
        let names = metadata.offset_keys();
        format!(
            "it has no tensor `{tensor}`, but {}",
            if names.is_empty() { "none at all".to_owned() } else { list(&names) }
        )
    })?;
    let dtype = dtype(info.dtype)?;
    let start = prefix.len() as u64 + header_bytes + info.data_offsets.0 as u64;
    file.seek(SeekFrom::Start(start)).map_err(|error| error.to_string())?;
    Header::new(dtype, info.shape.iter().map(|extent| *extent as u64).collect(), false)
}

/// The first names of a list.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// The types that both have.
const TYPES: [(safetensors::Dtype, Dtype); 10] = [
    (safetensors::Dtype::F32, Dtype::F32),
    (safetensors::Dtype::F64, Dtype::F64),
    (safetensors::Dtype::F16, Dtype::F16),
    (safetensors::Dtype::BF16, Dtype::BF16),
    (safetensors::Dtype::I32, Dtype::I32),
    (safetensors::Dtype::I64, Dtype::I64),
    (safetensors::Dtype::I8, Dtype::I8),
    (safetensors::Dtype::U8, Dtype::U8),
    (safetensors::Dtype::U32, Dtype::U32),
    (safetensors::Dtype::U64, Dtype::U64),
];

fn dtype(theirs: safetensors::Dtype) -> Result<Dtype, String> {
    let ours = TYPES.iter().find(|(known, _)| *known == theirs).map(|(_, ours)| *ours);
    ours.ok_or_else(|| {
        format!("its elements are {theirs:?}, but they must be F32, F64, F16, BF16, or I or U of 8, 32 or 64 bits")
    })
}

pub(super) fn write(path: &Path, tensor: &str, header: &Header, bytes: &[u8]) -> Result<(), String> {
    let theirs = TYPES.iter().find(|(_, ours)| *ours == header.dtype).map(|(theirs, _)| *theirs);
    let theirs = theirs.ok_or_else(|| format!("the format has no {}", header.dtype))?;
    let shape = header.shape.iter().map(|extent| *extent as usize).collect();
    let view = TensorView::new(theirs, shape, bytes).map_err(|error| error.to_string())?;
    safetensors::serialize_to_file([(tensor, view)], None, path).map_err(|error| error.to_string())
}
