//! Maps of named tensors and other values.

use std::collections::BTreeMap;

use super::bridge::{Named, Operand};
use super::report::guard;
use super::tensor::resolve;
use super::{Coordinator, Report, Stream, Tensor};
use crate::environment::{self, NamedValue};
use crate::error::{Error, Result};
use crate::types::Dtype;

/// The received values, in the order of names.
pub struct Received(Vec<(String, Arrived)>);

enum Arrived {
    Tensor(Box<Tensor>, Vec<usize>),
    /// Another value, as JSON.
    Other(String),
}

/// `given`: whether a map was passed.
///
/// # Safety
/// The operands' pointers are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn coordinator_broadcast_named(
    coordinator: &Coordinator,
    given: bool,
    map: &[Named],
    root: usize,
    stream: &Stream,
) -> Result<Box<Received>, Report> {
    guard(|| {
        let entry = |named: &Named| {
            let name = text(&named.name, "the name of a value")?;
            if !named.is_tensor {
                let what = format!("the value `{name}`");
                let other = text(&named.other, &what)?;
                let value = serde_json::from_str(other)
                    .map_err(|error| Error::invalid(&what, format!("`{}`", start_of(other)), error))?;
                return Ok((name.to_owned(), NamedValue::Other(value)));
            }
            if !named.refusal.is_empty() {
                return Err(Error::invalid(&format!("tensor `{name}`"), "unusable", &named.refusal));
            }
            // SAFETY: passed on.
            let (view, dtype) = unsafe { resolve(coordinator.device(), &named.operand) }?;
            let tensor = environment::NamedTensor::borrowed_untyped(dtype, &view, &named.shape)?;
            Ok((name.to_owned(), NamedValue::Tensor(tensor)))
        };
        let map = given.then(|| map.iter().map(entry).collect::<Result<BTreeMap<_, _>>>()).transpose();
        let own = map.as_ref().map(Option::as_ref).map_err(Clone::clone);
        let received = coordinator.broadcast_named_made(own, root, stream)?.unwrap_or_default();
        let arrived = received.into_iter().map(|(name, value)| Ok((name, arrived(value)?)));
        Ok(Box::new(Received(arrived.collect::<Result<_>>()?)))
    })
}

fn text<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str> {
    let limit =
        |error| Error::invalid(what, start_of(&String::from_utf8_lossy(bytes)), format!("it must be UTF-8: {error}"));
    str::from_utf8(bytes).map_err(limit)
}

/// The start of a value, short enough for a message.
fn start_of(value: &str) -> String {
    const MOST_CHARS: usize = 100;
    match value.chars().nth(MOST_CHARS) {
        None => value.to_owned(),
        Some(_) => value.chars().take(MOST_CHARS).chain("...".chars()).collect(),
    }
}

fn arrived(value: NamedValue<'static>) -> Result<Arrived> {
    match value {
        NamedValue::Tensor(tensor) => {
            let (dtype, shape, memory) = tensor.into_own()?;
            Ok(Arrived::Tensor(Tensor::of_bytes(memory, dtype), shape))
        }
        NamedValue::Other(value) => Ok(Arrived::Other(value.to_string())),
    }
}

/// Names and shapes; [`received_tensor`] takes the tensors.
pub(super) fn received_entries(received: &Received) -> Vec<Named> {
    let entry = |(name, arrived): &(String, Arrived)| {
        let (is_tensor, shape, other) = match arrived {
            Arrived::Tensor(_, shape) => (true, shape.clone(), Vec::new()),
            Arrived::Other(json) => (false, Vec::new(), json.clone().into_bytes()),
        };
        let operand = Operand {
            tensor: std::ptr::null(),
            address: std::ptr::null_mut(),
            start: 0,
            count: 0,
            dtype: Dtype::U8 as u32,
            typed: false,
            pushed: false,
        };
        Named { name: name.clone().into_bytes(), is_tensor, refusal: String::new(), operand, shape, other }
    };
    received.0.iter().map(entry).collect()
}

pub(super) fn received_tensor(received: &Received, index: usize) -> Result<Box<Tensor>, Report> {
    guard(|| match received.0.get(index) {
        Some((_, Arrived::Tensor(tensor, _))) => Ok(tensor.clone()),
        _ => {
            Err(Error::invalid("the number of a tensor in a map", index, "the value with this number must be a tensor"))
        }
    })
}
