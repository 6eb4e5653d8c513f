//! The safetensors format: many tensors a file, each with a name.

use std::fs::File;
use std::io::{Read, Write};

use safetensors::tensor::{Metadata, TensorInfo};
use symmetra::Dtype;

use super::shown::shown;
use super::{FileHeader, FileLayout, FileTensor};

/// Longest header that the format allows.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Headers are padded, so that elements are aligned.
const ALIGN: usize = 8;

/// Reads the header of the tensor of this name, or of all.
pub(super) fn layout(file: &mut File, tensor: Option<&str>) -> Result<FileLayout, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("it is no .safetensors file: {}", shown(&error.to_string()));
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).map_err(|error| wrong(&error))?;
    let header_bytes = u64::from_le_bytes(prefix);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(wrong(&format!("its header would have {header_bytes} bytes")));
    }
    // Takes memory as bytes come, not as the file claims.
    let mut text = Vec::new();
    let read = file.take(header_bytes).read_to_end(&mut text).map_err(|error| wrong(&error))?;
    if (read as u64) < header_bytes {
        return Err(wrong(&format!("it ends after {read} of the {header_bytes} bytes of its header")));
    }
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    let position = prefix.len() as u64 + header_bytes;
    let starts = |info: &TensorInfo| position.saturating_add(info.data_offsets.0 as u64);
    let mut chosen = choose(&metadata, tensor)?;
    chosen.sort_by(|(one, _), (other, _)| one.in_order(other));
    let (tensors, starts) = chosen.into_iter().map(|(tensor, info)| (tensor, starts(info))).unzip();
    let texts = metadata.metadata().clone().map(|texts| texts.into_iter().collect());
    Ok(FileLayout { header: FileHeader { tensors, texts }, position, starts })
}

/// The tensor of this name, or all.
fn choose<'m>(metadata: &'m Metadata, tensor: Option<&str>) -> Result<Vec<(FileTensor, &'m TensorInfo)>, String> {
    let names = metadata.offset_keys();
    let known = |name: &str| metadata.info(name).map(|info| convert(name, info).map(|tensor| (tensor, info)));
    match tensor {
        Some(name) => match known(name) {
            Some(found) => Ok(vec![found?]),
            None => Err(format!("it has no tensor `{}`, but {}", shown(name), list(&names))),
        },
        None if names.is_empty() => Err("it has no tensors".to_owned()),
        None => names.iter().filter_map(|name| known(name)).collect::<Result<_, _>>().map_err(|error| {
            let good: Vec<String> =
                names.iter().filter(|name| known(name).is_some_and(|known| known.is_ok())).cloned().collect();
            format!("{error}. Reduce one tensor by --tensor: it has {}", list(&good))
        }),
    }
}

fn convert(name: &str, info: &TensorInfo) -> Result<FileTensor, String> {
    let shape = info.shape.iter().map(|extent| *extent as u64).collect();
    dtype(info.dtype)
        .and_then(|dtype| FileTensor::new(name, dtype, shape, false))
        .map_err(|error| format!("tensor `{}`: {error}", shown(name)))
}

/// The first names of a list.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let first = names.iter().take(SHOWN).map(|name| format!("`{}`", shown(name))).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        _ if names.is_empty() => "none at all".to_owned(),
        None | Some(0) => first,
        Some(more) => format!("{first} and {more} more"),
    }
}

/// The types that both have.
const TYPES: [(safetensors::Dtype, Dtype); 12] = [
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
    (safetensors::Dtype::F8_E4M3, Dtype::F8E4M3),
    (safetensors::Dtype::F8_E5M2, Dtype::F8E5M2),
];

fn dtype(theirs: safetensors::Dtype) -> Result<Dtype, String> {
    let ours = TYPES.iter().find(|(known, _)| *known == theirs).map(|(_, ours)| *ours);
    ours.ok_or_else(|| {
        format!(
            "its elements are {theirs:?}, but they must be F32, F64, F16, BF16, F8_E4M3, F8_E5M2, or I or U of 8, 32 or 64 bits"
        )
    })
}

/// Writes everything before the elements, which follow in the order of the header.
pub(super) fn begin(file: &mut File, header: &FileHeader) -> Result<(), String> {
    let mut end = 0;
    let mut infos = Vec::new();
    for tensor in &header.tensors {
        let theirs = TYPES.iter().find(|(_, ours)| *ours == tensor.dtype).map(|(theirs, _)| *theirs);
        let dtype = theirs.ok_or_else(|| format!("the format has no {}", tensor.dtype))?;
        let shape = tensor.shape.iter().map(|extent| *extent as usize).collect();
        let start = end;
        end += tensor.bytes() as usize;
        infos.push((tensor.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) }));
    }
    let texts = header.texts.clone().map(|texts| texts.into_iter().collect());
    let metadata = Metadata::new(texts, infos).map_err(|error| error.to_string())?;
    // A value has its keys in order, so that equal sums are equal files.
    let text = serde_json::to_value(&metadata).and_then(|value| serde_json::to_vec(&value));
    let mut text = text.map_err(|error| error.to_string())?;
    text.resize(text.len().next_multiple_of(ALIGN), b' ');
    let length = (text.len() as u64).to_le_bytes();
    file.write_all(&length).and_then(|()| file.write_all(&text)).map_err(|error| error.to_string())
}
