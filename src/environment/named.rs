//! Maps of named tensors and other values, sent from one rank to the whole group.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::coordinator::Coordinator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, Ref, View};
use crate::stream::Stream;
use crate::types::{Dtype, Element, with_type};

/// A row-major tensor of any type in the memory of a device.
pub struct NamedTensor<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    memory: TensorMemory<'a>,
}

/// Memory that a tensor owns or borrows.
enum TensorMemory<'a> {
    Own(DeviceBuffer<u8>),
    Borrowed(Ref<'a, u8>),
}

impl<'a> NamedTensor<'a> {
    /// Allocates a tensor. Its contents are undefined.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::InvalidArgument`] for a shape whose size overflows.
    pub fn new(device: &Device, dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let bytes = elements(shape).and_then(|elems| elems.checked_mul(dtype.bytes()));
        let limit = format!("{dtype} of that shape must fit the address space");
        let bytes = bytes.ok_or_else(|| Error::invalid("the shape", format!("{shape:?}"), limit))?;
        Ok(Self { dtype, shape: shape.to_vec(), memory: TensorMemory::Own(DeviceBuffer::new(device, bytes)?) })
    }

    /// A tensor in borrowed memory, such as that of [`DeviceBuffer::borrow`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the shape and the memory differ in their number of elements.
    pub fn borrowed<T: Element>(memory: &Ref<'a, T>, shape: &[usize]) -> Result<Self> {
        if elements(shape) != Some(memory.len()) {
            let limit = format!("the memory has {} elements", memory.len());
            return Err(Error::invalid("the shape", format!("{shape:?}"), limit));
        }
        Ok(Self { dtype: T::DTYPE, shape: shape.to_vec(), memory: TensorMemory::Borrowed(memory.cast()) })
    }

    /// A tensor in borrowed memory without a Rust type, for the C++ bridge.
    pub(crate) fn borrowed_untyped(dtype: Dtype, memory: &View<'a>, shape: &[usize]) -> Result<Self> {
        with_type!(dtype, T => {
            let owned = Ref::<T>::new(memory.address.cast(), memory.elems, memory.device).owned_by(memory.owner.cloned());
            Self::borrowed(&owned, shape)
        })
    }

    /// The memory of a tensor that owns it, for the C++ bridge.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a tensor in borrowed memory.
    pub(crate) fn into_own(self) -> Result<(Dtype, Vec<usize>, DeviceBuffer<u8>)> {
        match self.memory {
            TensorMemory::Own(buffer) => Ok((self.dtype, self.shape, buffer)),
            TensorMemory::Borrowed(_) => {
                Err(Error::unsupported("to take a tensor's memory", "the tensor borrows the memory"))
            }
        }
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The memory as bytes.
    pub fn bytes(&self) -> Ref<'_, u8> {
        match &self.memory {
            TensorMemory::Own(buffer) => buffer.borrow(),
            TensorMemory::Borrowed(memory) => memory.clone(),
        }
    }

    /// The memory, to read, write or use as an operand.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the elements are of another type.
    pub fn elements<T: Element>(&self) -> Result<Ref<'_, T>> {
        if self.dtype != T::DTYPE {
            return Err(Error::invalid("the type", T::DTYPE, format!("the tensor holds {}", self.dtype)));
        }
        Ok(self.bytes().cast())
    }
}

impl fmt::Debug for NamedTensor<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "NamedTensor({} {:?})", self.dtype, self.shape)
    }
}

fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |all, dim| all.checked_mul(*dim))
}

/// The value of a name.
#[derive(Debug)]
#[non_exhaustive]
pub enum NamedValue<'a> {
    /// A tensor.
    Tensor(NamedTensor<'a>),
    /// Any value of JSON. Numbers arrive bit for bit. JSON has no NaN and no infinity, and `serde_json::to_value` makes
    /// null of them: send such values by [`broadcast_object`](Coordinator::broadcast_object).
    Other(serde_json::Value),
}

impl<'a> NamedValue<'a> {
    /// The tensor, if the value is one.
    pub fn tensor(&self) -> Option<&NamedTensor<'a>> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Other(_) => None,
        }
    }

    /// The other value, if the value is not a tensor.
    pub fn other(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Tensor(_) => None,
            Self::Other(value) => Some(value),
        }
    }
}

/// The description of a value that ranks exchange first.
#[derive(Serialize, Deserialize)]
enum ValueCard {
    Tensor { dtype: u32, shape: Vec<usize> },
    Other(serde_json::Value),
}

impl Coordinator {
    /// Sends named tensors and other values of rank `root` to every rank. The other ranks pass `None` and receive the
    /// map, with tensors in new memory of their device. The root passes its map and receives `None`.
    ///
    /// **Blocks** until every rank has received names, types and shapes and has allocated memory. Descriptions are sent
    /// as an object of at most 64 MiB less 256 bytes. The tensors follow on `stream`, one
    /// [`broadcast`](crate::ProcessGroup::broadcast) each in the order of names: use them in stream order. Between
    /// hosts the broadcasts block too.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use symmetra::{DeviceBuffer, Result, Stream, environment::{Coordinator, NamedTensor, NamedValue}};
    /// fn weights(tp: &Coordinator, scale: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let mut map = BTreeMap::new();
    ///     map.insert("scale".to_owned(), NamedValue::Tensor(NamedTensor::borrowed(&scale.borrow(), &[scale.len()])?));
    ///     map.insert("layer".to_owned(), NamedValue::Other(7.into()));
    ///     let received = tp.broadcast_named(tp.is_first_rank().then_some(&map), 0, stream)?;
    ///     let map = received.as_ref().unwrap_or(&map);
    ///     let tensor = map["scale"].tensor().map(|tensor| tensor.elements::<f32>()).transpose()?;
    ///     # let _ = tensor;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`broadcast_object`](Self::broadcast_object) and [`broadcast`](crate::ProcessGroup::broadcast);
    /// [`Error::InvalidArgument`] for a tensor or a stream of another device; [`Error::Unsupported`] while the stream
    /// is being captured; [`Error::OutOfMemory`] or [`Error::InvalidArgument`] if this rank cannot allocate a tensor,
    /// with [`Error::Peer`] on the other ranks: nothing is sent in this case.
    pub fn broadcast_named(
        &self,
        map: Option<&BTreeMap<String, NamedValue<'_>>>,
        root: usize,
        stream: &Stream,
    ) -> Result<Option<BTreeMap<String, NamedValue<'static>>>> {
        self.broadcast_named_made(Ok(map), root, stream)
    }

    /// Sends a map. A rank with an error takes part in the call, so that no rank waits for it.
    pub(crate) fn broadcast_named_made(
        &self,
        map: Result<Option<&BTreeMap<String, NamedValue<'_>>>>,
        root: usize,
        stream: &Stream,
    ) -> Result<Option<BTreeMap<String, NamedValue<'static>>>> {
        let card = |(name, value): (&String, &NamedValue<'_>)| -> Result<(String, ValueCard)> {
            let card = match value {
                NamedValue::Tensor(tensor) => {
                    self.device().check_same(&format!("tensor `{name}`"), tensor.bytes().device())?;
                    ValueCard::Tensor { dtype: tensor.dtype as u32, shape: tensor.shape.clone() }
                }
                NamedValue::Other(value) => ValueCard::Other(value.clone()),
            };
            Ok((name.clone(), card))
        };
        let cards = |map: &BTreeMap<String, NamedValue<'_>>| map.iter().map(card).collect::<Result<BTreeMap<_, _>>>();
        let own = map.clone().and_then(|map| {
            self.device().check_same("stream", stream.device())?;
            if stream.is_capturing()? {
                let reason = "tensors are sent after every rank has allocated them, which a graph cannot do";
                return Err(Error::unsupported("to broadcast a map on a stream that is being captured", reason));
            }
            map.map(cards).transpose()
        });
        let cards: BTreeMap<String, ValueCard> = self.broadcast_made(own, root)?;
        let map = map?;
        let fill = |card: ValueCard| -> Result<NamedValue<'static>> {
            match card {
                ValueCard::Tensor { dtype, shape } => {
                    let known = Dtype::from_number(dtype);
                    let known =
                        known.ok_or_else(|| Error::bootstrap(format!("rank {root} sent a tensor of type {dtype}")));
                    Ok(NamedValue::Tensor(NamedTensor::new(self.device(), known?, &shape)?))
                }
                ValueCard::Other(value) => Ok(NamedValue::Other(value)),
            }
        };
        let received = match map {
            Some(_) => Ok(None),
            None => cards.into_iter().map(|(name, card)| Ok((name, fill(card)?))).collect::<Result<_>>().map(Some),
        };
        let received: Option<BTreeMap<String, NamedValue<'static>>> = self.together("allocate tensors", received)?;
        let tensors = |map: &BTreeMap<String, NamedValue<'_>>| {
            map.values()
                .filter_map(NamedValue::tensor)
                .try_for_each(|tensor| self.broadcast(tensor.bytes(), root, stream))
        };
        map.map_or(Ok(()), tensors)?;
        received.as_ref().map_or(Ok(()), tensors)?;
        Ok(received)
    }
}
