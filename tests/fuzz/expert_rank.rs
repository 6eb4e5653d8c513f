//! Experts on one rank, and the calls on them.

use std::fs::File;
use std::io::Read;

use symmetra::experts::{
    Arriving, Combine, Experts, Layout, Received, Returning, Routed, Routing, ScaleOrder, Scales, Wire,
};
use symmetra::{Device, DeviceBuffer, Error, Queue, Ref, Result, Stream};

use crate::experts::{Content, Layer, Misrouted, Round, Rounds, contents, misrouted, of_values};
use crate::model::values;
use crate::program::GUARD;
use crate::support::Sample;

/// The value of the bytes after operands.
const BEHIND: u8 = 0xc3;

/// The operands of a dispatch and its combine.
struct Operands<T: Sample> {
    ids: Room<i64>,
    weights: Room<f32>,
    sent: Room<u32>,
    rows: Room<T>,
    codes: Room<u8>,
    given: Room<f32>,
    rows_again: Room<T>,
    codes_again: Room<u8>,
    results: Room<T>,
    received: Room<T>,
    received_codes: Room<u8>,
    scales: Room<f32>,
    bytes_of_scales: Room<u8>,
    /// Counts, offsets, sources, index.
    numbers: [Room<u32>; 4],
    local_ids: Room<i32>,
    local_weights: Room<f32>,
    sums: Room<T>,
    /// Whether the rank passes weights, adds rows, and has scales in columns.
    asks: [bool; 3],
}

impl<T: Sample> Operands<T> {
    /// Operands as large as `contents`.
    fn new(device: &Device, contents: &[Content], asks: [bool; 3]) -> Result<Self> {
        let mut sizes = contents.iter().map(|(dtype, bytes)| bytes.len() / dtype.bytes());
        let mut next = || sizes.next().unwrap_or_default();
        macro_rules! made {
            () => {
                Room::new(device, next())?
            };
        }
        Ok(Self {
            ids: made!(),
            weights: made!(),
            sent: made!(),
            rows: made!(),
            codes: made!(),
            given: made!(),
            rows_again: made!(),
            codes_again: made!(),
            results: made!(),
            received: made!(),
            received_codes: made!(),
            scales: made!(),
            bytes_of_scales: made!(),
            numbers: [made!(), made!(), made!(), made!()],
            local_ids: made!(),
            local_weights: made!(),
            sums: made!(),
            asks,
        })
    }

    /// Writes all operands, from the rank's file.
    fn write(&self, file: &mut File, stream: &Stream) -> Result<()> {
        fill(&self.ids, file, stream)?;
        fill(&self.weights, file, stream)?;
        fill(&self.sent, file, stream)?;
        fill(&self.rows, file, stream)?;
        fill(&self.codes, file, stream)?;
        fill(&self.given, file, stream)?;
        fill(&self.rows_again, file, stream)?;
        fill(&self.codes_again, file, stream)?;
        fill(&self.results, file, stream)?;
        fill(&self.received, file, stream)?;
        fill(&self.received_codes, file, stream)?;
        fill(&self.scales, file, stream)?;
        fill(&self.bytes_of_scales, file, stream)?;
        self.numbers.iter().try_for_each(|numbers| fill(numbers, file, stream))?;
        fill(&self.local_ids, file, stream)?;
        fill(&self.local_weights, file, stream)?;
        fill(&self.sums, file, stream)
    }

    /// All that calls write, one after the other.
    fn read(&self, stream: &Stream, into: &mut Vec<u8>) -> Result<()> {
        append(&self.received, into, stream)?;
        append(&self.received_codes, into, stream)?;
        append(&self.scales, into, stream)?;
        append(&self.bytes_of_scales, into, stream)?;
        self.numbers.iter().try_for_each(|numbers| append(numbers, into, stream))?;
        append(&self.local_ids, into, stream)?;
        append(&self.local_weights, into, stream)?;
        append(&self.sums, into, stream)
    }
}

/// Memory of an operand, followed by elements that no call accesses.
struct Room<E: Sample> {
    buffer: DeviceBuffer<E>,
    elems: usize,
}

impl<E: Sample> Room<E> {
    fn new(device: &Device, elems: usize) -> Result<Self> {
        Ok(Self { buffer: DeviceBuffer::new(device, elems + GUARD)?, elems })
    }

    /// The elements that calls access.
    fn part(&self) -> Ref<'_, E> {
        self.buffer.borrow().slice(..self.elems).unwrap()
    }
}

fn fill<E: Sample>(room: &Room<E>, file: &mut File, stream: &Stream) -> Result<()> {
    let mut bytes = vec![0; room.elems * size_of::<E>()];
    file.read_exact(&mut bytes).unwrap();
    bytes.resize((room.elems + GUARD) * size_of::<E>(), BEHIND);
    room.buffer.write(&values::<E>(&bytes), stream)
}

fn append<E: Sample>(room: &Room<E>, into: &mut Vec<u8>, stream: &Stream) -> Result<()> {
    let elements = room.buffer.read(stream)?;
    let (own, behind) = elements.split_at(room.elems);
    if bytemuck::cast_slice::<E, u8>(behind).iter().any(|byte| *byte != BEHIND) {
        return Err(Error::Internal { message: "memory behind an operand was written".to_owned() });
    }
    into.extend_from_slice(bytemuck::cast_slice(own));
    Ok(())
}

/// Calls on experts.
struct Calls<'q> {
    experts: &'q Experts,
    rounds: &'q Rounds,
}

impl<'q> Calls<'q> {
    fn routing<'o, T: Sample>(&self, own: &'o Operands<T>) -> Routing<'o> {
        let routing = Routing::new(own.ids.part()).tokens(own.sent.part());
        if own.asks[0] { routing.weights(own.weights.part()) } else { routing }
    }

    fn into<'o, T: Sample>(&self, own: &'o Operands<T>) -> Received<'o> {
        let config = self.experts.config();
        let into = match config.wire {
            Wire::Same => Received::rows(own.received.part()),
            _ => Received::rows(own.received_codes.part()),
        };
        let order = if own.asks[2] { ScaleOrder::Columns } else { ScaleOrder::Rows };
        let [counts, offsets, sources, index] = &own.numbers;
        let into = into.sources(sources.part()).ids(own.local_ids.part()).weights(own.local_weights.part());
        let into =
            if config.layout == Layout::BySource { into } else { into.counts(counts.part()).offsets(offsets.part()) };
        let into = if config.layout == Layout::ByRank { into.index(index.part()) } else { into };
        match config.wire {
            Wire::F8(Scales::E8M0) => into.scales(own.bytes_of_scales.part(), order),
            Wire::F8(_) | Wire::GivenF8 => into.scales(own.scales.part(), order),
            _ => into,
        }
    }

    fn dispatch<'o, T: Sample>(&self, own: &'o Operands<T>, queue: impl Queue<'o> + Copy + 'q) -> Result<Routed<'q>> {
        let (experts, routing, into) = (self.experts, self.routing(own), self.into(own));
        if self.rounds.plans {
            let routed = experts.plan(&routing, queue)?;
            self.send(&routed, (own.rows.part(), own.codes.part()), own, queue)?;
            return Ok(routed);
        }
        match experts.config().wire {
            Wire::Same | Wire::F8(_) => experts.dispatch(&routing, own.rows.part(), &into, queue),
            Wire::GivenF8 => experts.dispatch_f8(&routing, own.codes.part(), own.given.part(), &into, queue),
            _ => experts.dispatch(&routing, own.codes.part(), &into, queue),
        }
    }

    /// Rows on a routing that is there.
    fn send<'o, T: Sample>(
        &self,
        routed: &Routed<'q>,
        (rows, codes): (Ref<'o, T>, Ref<'o, u8>),
        own: &'o Operands<T>,
        queue: impl Queue<'o> + Copy,
    ) -> Result<()> {
        let into = self.into(own);
        match self.experts.config().wire {
            Wire::Same | Wire::F8(_) => routed.dispatch(rows, &into, queue),
            Wire::GivenF8 => routed.dispatch_f8(codes, own.given.part(), &into, queue),
            _ => routed.dispatch(codes, &into, queue),
        }
    }

    fn begin<'o, T: Sample>(&self, own: &'o Operands<T>, queue: impl Queue<'o> + Copy + 'q) -> Result<Arriving<'q>> {
        let routing = self.routing(own);
        match self.experts.config().wire {
            Wire::Same | Wire::F8(_) => self.experts.dispatch_begin(&routing, own.rows.part(), queue),
            Wire::GivenF8 => self.experts.dispatch_f8_begin(&routing, own.codes.part(), own.given.part(), queue),
            _ => self.experts.dispatch_begin(&routing, own.codes.part(), queue),
        }
    }

    fn options<'o, T: Sample>(&self, own: &'o Operands<T>) -> Combine<'o> {
        let options = if own.asks[1] { Combine::default().add(own.sums.part()) } else { Combine::default() };
        if self.rounds.unweighted { options.unweighted() } else { options }
    }

    /// All rounds, of which `together` are in flight at once. The counts that the host reads are appended to `heard`.
    fn enqueue<'o, T: Sample>(
        &self,
        all: &'o [Operands<T>],
        queue: impl Queue<'o> + Copy + 'q,
        heard: &mut Vec<u8>,
    ) -> Result<()> {
        let [begins_dispatch, begins_combine] = self.rounds.halves;
        for together in all.chunks(self.rounds.together) {
            let routed: Vec<Routed<'q>> = if begins_dispatch {
                let begun: Vec<Arriving<'q>> =
                    together.iter().map(|own| self.begin(own, queue)).collect::<Result<_>>()?;
                let received = begun.into_iter().zip(together);
                received.map(|(begun, own)| begun.receive(&self.into(own), queue)).collect::<Result<_>>()?
            } else {
                together.iter().map(|own| self.dispatch(own, queue)).collect::<Result<_>>()?
            };
            let mut pairs: Vec<_> = routed.iter().zip(together).collect();
            for routed in routed.iter().filter(|_| self.rounds.counts) {
                heard.extend(routed.counts()?.iter().flat_map(|count| (*count as u32).to_le_bytes()));
            }
            if self.rounds.again {
                let rows = |own: &'o Operands<T>| (own.rows_again.part(), own.codes_again.part());
                pairs.iter().try_for_each(|(routed, own)| self.send(routed, rows(own), own, queue))?;
            }
            if self.rounds.reversed {
                pairs.reverse();
            }
            if !begins_combine {
                let combine = |(routed, own): &(&Routed<'q>, &'o Operands<T>)| {
                    routed.combine(own.results.part(), own.sums.part(), self.options(own), queue)
                };
                pairs.iter().try_for_each(combine)?;
                continue;
            }
            let begin =
                |(routed, own): &(&Routed<'q>, &'o Operands<T>)| routed.combine_begin(own.results.part(), queue);
            let begun: Vec<Returning<'_>> = pairs.iter().map(begin).collect::<Result<_>>()?;
            for (begun, (_, own)) in begun.into_iter().zip(&pairs) {
                begun.receive(own.sums.part(), self.options(own), queue)?;
            }
        }
        Ok(())
    }
}

/// Where a rank is.
pub(crate) struct Here<'a> {
    /// In the group.
    pub(crate) member: usize,
    pub(crate) stream: &'a Stream,
    /// The bytes that the rank writes into its buffers.
    pub(crate) file: &'a mut File,
}

/// Makes the calls, and returns their outputs.
pub(crate) fn run(experts: &Experts, layer: &Layer, rounds: &Rounds, here: Here<'_>) -> Result<Vec<u8>> {
    of_values!(layer.dtype(), run_of(experts, layer, rounds, here))
}

fn run_of<T: Sample>(experts: &Experts, layer: &Layer, rounds: &Rounds, here: Here<'_>) -> Result<Vec<u8>> {
    let Here { member, stream, file } = here;
    let operands =
        |round: &Round| Operands::<T>::new(stream.device(), &contents(layer, round, member, 0), round.asks(member));
    let all: Vec<Operands<T>> = rounds.rounds.iter().map(operands).collect::<Result<_>>()?;
    let calls = Calls { experts, rounds };
    let (mut found, mut heard) = (Vec::new(), Vec::new());
    let graph = match rounds.replays {
        0 => None,
        _ => Some(stream.capture(|capture| calls.enqueue(&all, capture, &mut Vec::new()))?),
    };
    graph.as_ref().map_or(Ok(()), symmetra::Graph::register)?;
    for run in 0..rounds.runs() {
        all.iter().try_for_each(|own| own.write(file, stream))?;
        if let Some(lists) = rounds.placed(run).filter(|_| run == rounds.first_placed()) {
            experts.place(&symmetra::experts::Placement::Table(lists.clone()), stream)?;
        }
        match &graph {
            Some(graph) => graph.launch(stream)?,
            None => calls.enqueue(&all, stream, &mut heard)?,
        }
        experts.synchronize(stream)?;
        all.iter().try_for_each(|own| own.read(stream, &mut found))?;
    }
    found.extend(heard);
    Ok(found)
}

/// Makes a call that the device refuses on some rank.
pub(crate) fn misroute(experts: &Experts, asked: &Misrouted, here: Here<'_>) -> Result<()> {
    of_values!(asked.layer.dtype(), misroute_of(experts, asked, here))
}

fn misroute_of<T: Sample>(experts: &Experts, asked: &Misrouted, here: Here<'_>) -> Result<()> {
    let Here { member, stream, file } = here;
    let own = Operands::<T>::new(stream.device(), &misrouted(asked, member), asked.round.asks(member))?;
    own.write(file, stream)?;
    let rounds = Rounds {
        experts: 0,
        rounds: Vec::new(),
        together: 1,
        halves: [false; 2],
        plans: false,
        again: false,
        reversed: false,
        unweighted: false,
        counts: false,
        replays: 0,
        place: None,
    };
    let routed = Calls { experts, rounds: &rounds }.dispatch(&own, stream);
    // The operands live until the device is done with the call.
    let learnt = routed.map(drop).and_then(|()| experts.synchronize(stream));
    let _ = stream.synchronize();
    learnt
}
