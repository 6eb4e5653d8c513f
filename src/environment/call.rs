//! A call of any operation, as every backend takes it.

use std::fmt;

use super::dispatch::Request;
use crate::collective::{Algorithm, AllReduceOptions, Communicator, Cut, check_apart, check_len, span};
use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::group::{BY_NCCL, Call as Noted};
use crate::memory::{Owner, Place, View};
use crate::stream::Enqueue;
use crate::types::{Dtype, Reduction};

/// An operation and its operands, whose element type is the caller's to say. Ranks are the group's.
pub(crate) enum Call<'v> {
    AllReduce { options: AllReduceOptions, input: View<'v>, output: View<'v> },
    ReduceScatter { reduction: Reduction, along: Along<'v>, input: View<'v>, output: View<'v> },
    AllGather { along: Along<'v>, input: View<'v>, output: View<'v> },
    AllToAll { input: View<'v>, output: View<'v> },
    AllToAllV { input: View<'v>, send_counts: &'v [usize], output: View<'v>, receive_counts: &'v [usize] },
    Broadcast { root: usize, buffer: View<'v> },
    Reduce { reduction: Reduction, root: usize, input: View<'v>, output: Option<View<'v>> },
    Gather { root: usize, input: View<'v>, output: Option<View<'v>> },
    Scatter { root: usize, input: Option<View<'v>>, output: View<'v> },
    SendReceive { messages: &'v [Message] },
}

/// A dimension and the shape of the input, where the tensor is cut along one.
pub(crate) type Along<'v> = Option<(usize, &'v [usize])>;

/// What a rank sends to another, or receives from it.
pub(crate) struct Message {
    pub(super) peer: usize,
    pub(super) sends: bool,
    dtype: Dtype,
    address: *mut u8,
    elems: usize,
    place: Place,
    device: Device,
    owner: Option<Owner>,
}

/// As errors name it.
impl fmt::Display for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "what is {} rank {}", self.way(), self.peer)
    }
}

impl Message {
    fn way(&self) -> &'static str {
        if self.sends { "sent to" } else { "received from" }
    }

    pub(crate) fn new(peer: usize, sends: bool, dtype: Dtype, operand: &View<'_>) -> Self {
        let View { address, elems, place, device, owner } = *operand;
        Self { peer, sends, dtype, address, elems, place, device: device.clone(), owner: owner.cloned() }
    }

    pub(super) fn view(&self) -> View<'_> {
        let owner = self.owner.as_ref();
        View { address: self.address, elems: self.elems, place: self.place, device: &self.device, owner }
    }

    pub(super) fn bytes(&self) -> usize {
        self.elems * self.dtype.bytes()
    }
}

impl Call<'_> {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::AllReduce { .. } => Operation::AllReduce,
            Self::ReduceScatter { .. } => Operation::ReduceScatter,
            Self::AllGather { .. } => Operation::AllGather,
            Self::AllToAll { .. } | Self::AllToAllV { .. } => Operation::AllToAll,
            Self::Broadcast { .. } => Operation::Broadcast,
            Self::Reduce { .. } => Operation::Reduce,
            Self::Gather { .. } => Operation::Gather,
            Self::Scatter { .. } => Operation::Scatter,
            Self::SendReceive { .. } => Operation::SendReceive,
        }
    }

    pub(super) fn reduction(&self) -> Option<Reduction> {
        match self {
            Self::AllReduce { options, .. } => Some(options.reduction),
            Self::ReduceScatter { reduction, .. } | Self::Reduce { reduction, .. } => Some(*reduction),
            _ => None,
        }
    }

    /// The rank that has what others do not, if there is one.
    pub(super) fn root(&self) -> Option<usize> {
        match self {
            Self::Broadcast { root, .. }
            | Self::Reduce { root, .. }
            | Self::Gather { root, .. }
            | Self::Scatter { root, .. } => Some(*root),
            _ => None,
        }
    }

    /// Elements of the operand that every rank has, equally long on all; 0 where each has its own counts.
    pub(super) fn elems(&self) -> usize {
        match self {
            Self::AllReduce { input, .. }
            | Self::ReduceScatter { input, .. }
            | Self::AllGather { input, .. }
            | Self::AllToAll { input, .. }
            | Self::Reduce { input, .. }
            | Self::Gather { input, .. } => input.elems,
            Self::Broadcast { buffer, .. } => buffer.elems,
            Self::Scatter { output, .. } => output.elems,
            Self::AllToAllV { .. } | Self::SendReceive { .. } => 0,
        }
    }

    /// Rows of a tensor that is cut along a dimension; 1 where there are none, or no elements.
    pub(super) fn rows(&self) -> u64 {
        match self {
            Self::ReduceScatter { along: Some((dim, shape)), .. }
            | Self::AllGather { along: Some((dim, shape)), .. }
                if self.elems() > 0 =>
            {
                shape.iter().take(*dim).product::<usize>() as u64
            }
            _ => 1,
        }
    }

    /// As the group's history keeps it, and as ranks compare it, where NCCL runs it. What only the ranks of a pair
    /// have in common is left out.
    pub(super) fn noted(&self, dtype: Dtype) -> Noted {
        let dtype = if matches!(self, Self::SendReceive { .. }) { Dtype::U8 } else { dtype };
        let (bytes, root) = (self.elems() * dtype.bytes(), self.root().unwrap_or(0));
        let reduction = self.reduction().unwrap_or(Reduction::Sum);
        Noted::new(bytes as u64, self.operation().number(), dtype, reduction, BY_NCCL, root as u32).in_rows(self.rows())
    }

    /// What backends are chosen by.
    pub(super) fn request(&self, dtype: Dtype, captured: bool) -> Request {
        let named = matches!(self, Self::AllReduce { options, .. } if options.algorithm != Algorithm::Auto);
        // The types of messages are the ranks' own.
        let dtype = if matches!(self, Self::SendReceive { .. }) { Dtype::U8 } else { dtype };
        Request { operation: self.operation(), reduction: self.reduction(), dtype, named, captured }
    }

    /// Enqueues it on the own kernels, which check it.
    pub(crate) fn enqueue(&self, communicator: &Communicator, dtype: Dtype, queue: &impl Enqueue) -> Result<()> {
        match self {
            Self::AllReduce { options, input, output } => {
                communicator.all_reduce_untyped(*options, dtype, [input, output], queue)
            }
            Self::ReduceScatter { reduction, along, input, output } => {
                communicator.reduce_scatter_untyped(dtype, *reduction, *along, [input, output], queue)
            }
            Self::AllGather { along, input, output } => {
                communicator.all_gather_untyped(dtype, *along, [input, output], queue)
            }
            Self::AllToAll { input, output } => communicator.all_to_all_untyped(dtype, [input, output], queue),
            Self::AllToAllV { input, send_counts, output, receive_counts } => {
                communicator.all_to_all_v_untyped(dtype, [input, output], [send_counts, receive_counts], queue)
            }
            Self::Broadcast { root, buffer } => communicator.broadcast_untyped(dtype, buffer, *root, queue),
            Self::Reduce { reduction, root, input, output } => {
                communicator.reduce_untyped(dtype, *reduction, *root, input, output.as_ref(), queue)
            }
            Self::Gather { root, input, output } => {
                communicator.gather_untyped(dtype, *root, input, output.as_ref(), queue)
            }
            Self::Scatter { root, input, output } => {
                communicator.scatter_untyped(dtype, *root, input.as_ref(), output, queue)
            }
            Self::SendReceive { messages } => {
                let mut batch = communicator.batch_untyped();
                for message in *messages {
                    match message.sends {
                        true => batch.send_untyped(message.dtype, &message.view(), message.peer)?,
                        false => batch.receive_untyped(message.dtype, &message.view(), message.peer)?,
                    }
                }
                batch.enqueue(queue)
            }
        }
    }

    /// How the tensor of an all-gather or reduce-scatter is cut; in one piece for all others.
    pub(super) fn cut(&self, world_size: usize) -> Result<Cut> {
        match self {
            Self::ReduceScatter { along: Some((dim, shape)), .. } => Cut::of_whole(shape, *dim, world_size),
            Self::AllGather { along: Some((dim, shape)), .. } => Cut::of_parts(shape, *dim, world_size),
            Self::AllGather { input: part, .. } => Ok(Cut::line(part.elems, world_size)),
            _ => Ok(Cut::line(self.elems() / world_size, world_size)),
        }
    }

    /// Refuses what the own kernels refuse, for backends that trust what they are told.
    pub(super) fn check(&self, dtype: Dtype, rank: usize, world_size: usize, device: &Device) -> Result<()> {
        if let Some(root) = self.root().filter(|root| *root >= world_size) {
            return Err(Error::invalid("root", root, format!("the group has {world_size} ranks")));
        }
        let times = |elems: usize| elems.checked_mul(world_size);
        match self {
            Self::AllReduce { input, output, .. } => {
                check_alike(input, output)?;
                apart(dtype, ("the input", input), ("the output", output), Some(0), device)
            }
            Self::ReduceScatter { input, output, .. } => {
                let cut = self.cut(world_size)?;
                check_len(
                    "input",
                    input.elems,
                    cut.whole_elems(),
                    format_args!("a part for each of {world_size} ranks"),
                )?;
                check_len("output", output.elems, cut.part_elems(), format_args!("one of {world_size} parts"))?;
                apart(dtype, ("the output", output), ("the input", input), cut.is_line().then_some(rank), device)
            }
            Self::AllGather { input, output, .. } => {
                let cut = self.cut(world_size)?;
                check_len("input", input.elems, cut.part_elems(), "the shape")?;
                check_len("output", output.elems, cut.whole_elems(), format_args!("{world_size} parts"))?;
                apart(dtype, ("the input", input), ("the output", output), cut.is_line().then_some(rank), device)
            }
            Self::AllToAll { input, output } => {
                check_len("input", input.elems, times(input.elems / world_size), "an equal part for each rank")?;
                check_alike(input, output)?;
                apart(dtype, ("the input", input), ("the output", output), None, device)
            }
            Self::AllToAllV { input, send_counts, output, receive_counts } => {
                check_counts("input", input, send_counts, world_size)?;
                check_counts("output", output, receive_counts, world_size)?;
                apart(dtype, ("the input", input), ("the output", output), None, device)
            }
            Self::Broadcast { buffer, .. } => device.check_same("buffer", buffer.device),
            Self::Reduce { root, input, output, .. } => match at_root("output", *root, rank, output.as_ref())? {
                None => device.check_same("input", input.device),
                Some(output) => {
                    check_alike(input, output)?;
                    apart(dtype, ("the input", input), ("the output", output), Some(0), device)
                }
            },
            Self::Gather { root, input, output } => match at_root("output", *root, rank, output.as_ref())? {
                None => device.check_same("input", input.device),
                Some(output) => {
                    check_len("output", output.elems, times(input.elems), format_args!("{world_size} inputs"))?;
                    apart(dtype, ("the input", input), ("the output", output), Some(*root), device)
                }
            },
            Self::Scatter { root, input, output } => match at_root("input", *root, rank, input.as_ref())? {
                None => device.check_same("output", output.device),
                Some(input) => {
                    check_len("input", input.elems, times(output.elems), format_args!("{world_size} outputs"))?;
                    apart(dtype, ("the output", output), ("the input", input), Some(*root), device)
                }
            },
            Self::SendReceive { messages } => check_messages(messages, world_size, device),
        }
    }
}

fn check_alike(input: &View<'_>, output: &View<'_>) -> Result<()> {
    match input.elems == output.elems {
        true => Ok(()),
        false => Err(Error::invalid("the output's length", output.elems, format!("the input has {}", input.elems))),
    }
}

/// The operand that only the root has.
fn at_root<'a, 'v>(what: &str, root: usize, rank: usize, view: Option<&'a View<'v>>) -> Result<Option<&'a View<'v>>> {
    match view {
        _ if rank != root => Ok(None),
        Some(view) => Ok(Some(view)),
        None => Err(Error::invalid(&format!("the root's {what}"), "missing", format!("rank {root} is the root"))),
    }
}

/// An operand and what it is called.
type Named<'a> = (&'a str, &'a View<'a>);

/// Refuses operands of other devices, and such as overlap; `part` may be the part of `whole` with number `place`.
fn apart(dtype: Dtype, part: Named<'_>, whole: Named<'_>, place: Option<usize>, device: &Device) -> Result<()> {
    device.check_same("operand", part.1.device)?;
    device.check_same("operand", whole.1.device)?;
    let (own, all) = (span(part.1, dtype), span(whole.1, dtype));
    let place = place.map(|place| all.start + place * own.len());
    check_apart((part.0, own.clone()), (whole.0, all), place.map(|start| start..start + own.len()))
}

fn check_counts(what: &str, view: &View<'_>, counts: &[usize], world_size: usize) -> Result<()> {
    if counts.len() != world_size {
        let limit = format!("the group has {world_size} ranks");
        return Err(Error::invalid(&format!("the number of counts of the {what}"), counts.len(), limit));
    }
    let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    match sum.filter(|sum| *sum <= view.elems) {
        Some(_) => Ok(()),
        None => {
            let limit = format!("the {what} has {} elements", view.elems);
            Err(Error::invalid(&format!("the sum of the {what}'s counts"), format!("{counts:?}"), limit))
        }
    }
}

fn check_messages(messages: &[Message], world_size: usize, device: &Device) -> Result<()> {
    for (number, message) in messages.iter().enumerate() {
        device.check_same("operand", message.view().device)?;
        if message.peer >= world_size {
            return Err(Error::invalid("the peer", message.peer, format!("the group has {world_size} ranks")));
        }
        let place = span(&message.view(), message.dtype);
        for earlier in &messages[..number] {
            if (earlier.peer, earlier.sends) == (message.peer, message.sends) {
                let what = format!("the number of messages {} rank {}", message.way(), message.peer);
                return Err(Error::invalid(&what, 2, "a batch holds one at most"));
            }
            if !earlier.sends || !message.sends {
                let other = span(&earlier.view(), earlier.dtype);
                check_apart((message, place.clone()), (earlier, other), None)?;
            }
        }
    }
    Ok(())
}
