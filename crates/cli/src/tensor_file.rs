//! Tensors in files.

mod npy;
mod safetensors;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use symmetra::{Dtype, Element};

use crate::failure::Failure;
use crate::names::by_name;

/// What a file of tensors looks like.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Format {
    /// One NumPy array.
    Npy,
    /// The tensor of this name among others.
    Safetensors { tensor: String },
}

/// What a tensor is, beside its elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    #[serde(with = "by_name")]
    pub(crate) dtype: Dtype,
    shape: Vec<u64>,
    /// Whether the first index varies fastest. A sum is the same in either order.
    fortran: bool,
}

impl Format {
    /// The format that a path's extension names.
    pub(crate) fn of(path: &Path, tensor: Option<&str>) -> Result<Self, Failure> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
        match (extension.as_deref(), tensor) {
            (Some("npy"), None) => Ok(Self::Npy),
            (Some("npy"), Some(_)) => {
                Err(Failure::usage("--tensor names a tensor of .safetensors files; a .npy file has only one"))
            }
            (Some("safetensors"), Some(tensor)) => Ok(Self::Safetensors { tensor: tensor.to_owned() }),
            (Some("safetensors"), None) => {
                Err(Failure::usage("--tensor must name the tensor of the .safetensors files"))
            }
            _ => Err(Failure::usage(format!(
                "`{}` is of no known format: it must end in .npy or .safetensors",
                path.display()
            ))),
        }
    }

    pub(crate) fn extension(&self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Safetensors { .. } => "safetensors",
        }
    }

    /// Whether a path has the extension of this format.
    pub(crate) fn fits(&self, path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == self.extension())
    }

    /// Reads a header. Errors name the file.
    pub(crate) fn header(&self, path: &Path) -> Result<Header, Failure> {
        self.open(path).map(|(header, _)| header)
    }

    /// Reads a header and leaves the file where the elements begin.
    fn open(&self, path: &Path) -> Result<(Header, File), Failure> {
        let mut file = File::open(path).map_err(Failure::doing(format!("open {}", path.display())))?;
        let header = match self {
            Self::Npy => npy::header(&mut file),
            Self::Safetensors { tensor } => safetensors::header(&mut file, tensor),
        };
        let header = header.map_err(|message| Failure::failed(format!("{}: {message}", path.display())))?;
        Ok((header, file))
    }

    /// Reads the elements of a tensor that is as `expected`.
    pub(crate) fn read<T: Element>(&self, path: &Path, expected: &Header) -> Result<Vec<T>, Failure> {
        let (header, mut file) = self.open(path)?;
        if header != *expected || header.dtype != T::DTYPE {
            let message = format!("{}: it was {expected}, and now is {header}", path.display());
            return Err(Failure::failed(message));
        }
        let mut values = vec![T::zeroed(); header.elems()];
        let read = file.read_exact(bytemuck::cast_slice_mut(&mut values));
        read.map_err(Failure::doing(format!("read {header} from {}", path.display())))?;
        Ok(values)
    }

    /// Writes a file of one tensor.
    pub(crate) fn write<T: Element>(&self, path: &Path, header: &Header, values: &[T]) -> Result<(), Failure> {
        let bytes = bytemuck::cast_slice(values);
        let written = match self {
            Self::Npy => npy::write(path, header, bytes),
            Self::Safetensors { tensor } => safetensors::write(path, tensor, header, bytes),
        };
        written.map_err(|message| Failure::failed(format!("cannot write {}: {message}", path.display())))
    }
}

impl Header {
    /// Refuses what does not fit memory.
    fn new(dtype: Dtype, shape: Vec<u64>, fortran: bool) -> Result<Self, String> {
        let bytes = shape.iter().try_fold(dtype.bytes() as u64, |product, extent| product.checked_mul(*extent));
        match bytes.filter(|bytes| *bytes <= 1 << 40) {
            Some(_) => Ok(Self { dtype, shape, fortran }),
            None => Err(format!("{dtype} {shape:?} has more than 1 TiB")),
        }
    }

    pub(crate) fn elems(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.elems() * self.dtype.bytes()) as u64
    }
}

impl fmt::Display for Header {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {:?}", self.dtype, self.shape)?;
        if self.fortran { write!(out, " in Fortran order") } else { Ok(()) }
    }
}
