//! NCCL as a peer: on our buffers, or on memory of its own in symmetric windows.
#![allow(unsafe_code)]

use symmetra::nccl::Window;
use symmetra::{Capture, Communicator, Element, Ref, Stream, SymmetricBuffer};

use super::side::Side;
use harness::collective::Collective;
use harness::contest::competitor::Competitor;
use harness::contest::nccl::{Call, Nccl};
use harness::contest::step::Step;
use harness::failure::Failure;

/// One rank of NCCL, with memory of its own for symmetric windows.
pub(super) struct Entrant<'a> {
    ours: &'a Communicator,
    collective: Collective,
    windows: Option<[Window; 2]>,
    nccl: Nccl,
}

impl<'a> Entrant<'a> {
    /// `None` without competitors. Windows have the size of the largest operand. Collective; blocks.
    pub(super) fn open(
        competitors: &[Competitor],
        ours: &'a Communicator,
        collective: Collective,
        largest_bytes: usize,
    ) -> Result<Option<Self>, Failure> {
        let Some(nccl) = Nccl::among(competitors, ours)? else { return Ok(None) };
        let windows = match competitors.contains(&Competitor::NcclSymmetric) {
            true => Some([nccl.window(largest_bytes)?, nccl.window(largest_bytes)?]),
            false => None,
        };
        Ok(Some(Self { ours, collective, windows, nccl }))
    }

    /// The candidate of one competitor. The plain competitor works on our buffers.
    pub(super) fn side<'s, T: Element>(
        &'s self,
        competitor: Competitor,
        input: &'s SymmetricBuffer<T>,
        output: &'s SymmetricBuffer<T>,
    ) -> symmetra::Result<Box<dyn Side<'s, T> + 's>> {
        let [input, output] = match (&self.windows, competitor) {
            (Some([from, to]), Competitor::NcclSymmetric) => {
                let device = self.ours.device();
                // SAFETY: the windows are as large as the largest operand and outlive the side; only NCCL
                // and the copies of this side use them, on one stream.
                let of = |window: &Window, elems| unsafe { Ref::from_raw(device, window.as_raw().cast(), elems) };
                [of(from, input.len())?, of(to, output.len())?]
            }
            _ => [input.borrow(), output.borrow()],
        };
        let call = self.nccl.on(self.collective, [input.clone(), output.clone()]);
        Ok(Box::new(Peer { call, input, output }))
    }
}

/// NCCL at one size.
struct Peer<'s, T: Element> {
    call: Call<'s, T>,
    input: Ref<'s, T>,
    output: Ref<'s, T>,
}

impl<'a, T: Element> Side<'a, T> for Peer<'_, T> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.call.enqueue(stream)
    }

    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        self.call.record(capture)
    }

    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> symmetra::Result<()> {
        self.input.write(input, stream)?;
        self.output.write(output, stream)
    }

    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>> {
        self.call.check()?;
        self.output.read(stream)
    }

    fn is_exact(&self) -> bool {
        false
    }
}
