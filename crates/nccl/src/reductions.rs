//! Reductions that the program makes: sums of products with one factor for each rank.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;
use symmetra::internal;
use symmetra::{Device, Dtype, Reduction, Untyped};

use crate::error::{CallFailure, Result, argument};
use crate::numbers;
use crate::out::{answer, not_null};

/// The factor of a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RankFactor {
    /// The bits of the factor, from the lowest on.
    Value(u64),
    /// The address of the factor, which the device reads when the call runs.
    At(usize),
}

impl RankFactor {
    /// The factor of a call on `device`.
    pub(crate) fn on(self, device: &Device, dtype: Dtype) -> Result<internal::Factor<'static>> {
        Ok(match self {
            Self::Value(bits) => internal::Factor::Value(bits),
            Self::At(address) => {
                // SAFETY: NCCL's contract is that the factor is valid on the device until the calls are done.
                let factor = unsafe { Untyped::assume(device, dtype, address as *mut c_void, 1) }?;
                internal::Factor::Memory(factor)
            }
        })
    }
}

/// A reduction that the program made.
#[derive(Clone, Copy, Debug)]
struct MadeReduction {
    dtype: Dtype,
    factor: RankFactor,
}

/// The reductions that the program made for a communicator, by their numbers.
#[derive(Default)]
pub(crate) struct Reductions(Mutex<HashMap<c_int, MadeReduction>>);

/// The number of the next reduction of the process: no two communicators have reductions of one number.
static NEXT: AtomicI32 = AtomicI32::new(numbers::FIRST_USER_REDUCTION);

impl Reductions {
    fn add(&self, made: MadeReduction) -> Result<c_int> {
        let next = |number: c_int| number.checked_add(1);
        let number = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number =
            number.map_err(|most| CallFailure::system(format!("the process has made {most} reductions, the most")))?;
        self.0.lock().insert(number, made);
        Ok(number)
    }

    fn find(&self, number: c_int) -> Result<MadeReduction> {
        self.0.lock().get(&number).copied().ok_or_else(|| unknown(number))
    }

    /// The reduction of a call on elements of `dtype`, with the factor of a reduction that the program made.
    pub(crate) fn of_call(&self, number: c_int, dtype: Dtype) -> Result<(Reduction, Option<RankFactor>)> {
        if number < numbers::FIRST_USER_REDUCTION {
            let reduction = numbers::reduction(number).ok_or_else(|| unknown(number))?;
            return Ok((reduction, None));
        }
        let made = self.find(number)?;
        if made.dtype != dtype {
            return Err(argument(
                "the type of the call",
                dtype,
                format!("the reduction {number} is of {}", made.dtype),
            ));
        }
        Ok((Reduction::Sum, Some(made.factor)))
    }

    /// `ncclRedOpCreatePreMulSum`. Local.
    pub(crate) fn create(&self, out: *mut c_int, scalar: Scalar) -> Result {
        let out = not_null("the reduction", out)?;
        answer("the reduction", out, self.add(scalar.read()?)?)
    }

    /// `ncclRedOpDestroy`. Local: calls of an open group keep their factor.
    pub(crate) fn destroy(&self, number: c_int) -> Result {
        match self.0.lock().remove(&number) {
            Some(_) => Ok(()),
            None => Err(argument("the reduction", number, "the program did not make it for the communicator")),
        }
    }
}

fn unknown(number: c_int) -> CallFailure {
    let limit = "reductions are 0 to 4 (sum, prod, max, min, avg) and the reductions that the program made for the communicator";
    argument("the reduction", number, limit)
}

/// The factor as a program passes it.
#[derive(Clone, Copy)]
pub(crate) struct Scalar {
    pub(crate) address: *const c_void,
    pub(crate) dtype: c_int,
    pub(crate) residence: c_int,
}

/// The residences of a factor: memory of the device, or of the host.
const DEVICE: c_int = 0;
const HOST: c_int = 1;

impl Scalar {
    fn read(self) -> Result<MadeReduction> {
        let Self { address, dtype, residence } = self;
        if address.is_null() {
            return Err(argument("the factor", "null", "the call reads it"));
        }
        let dtype = numbers::dtype(dtype)?;
        let factor = match residence {
            HOST => {
                let mut bytes = [0; 8];
                // SAFETY: NCCL's contract: one element of the type, in memory of the host.
                unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(address.cast(), dtype.bytes()) };
                RankFactor::Value(u64::from_le_bytes(bytes))
            }
            DEVICE if !(address as usize).is_multiple_of(dtype.bytes()) => {
                let limit = format!("{dtype} must be aligned to {} bytes", dtype.bytes());
                return Err(argument("the address of the factor", format!("{address:p}"), limit));
            }
            DEVICE => RankFactor::At(address as usize),
            _ => return Err(argument("the residence of the factor", residence, "it is 0 (device) or 1 (host)")),
        };
        Ok(MadeReduction { dtype, factor })
    }
}
