//! One rank's part of a comparison of collectives: the candidates of every size.

use symmetra::{Algorithm, Communicator, DeviceBuffer, Element, Operand, Reduction, SymmetricBuffer};

use super::candidate::{Checked, Contestant, Judged, OwnMeans, With, ours};
use super::data::CollectiveData;
use super::{CollectiveRace, OURS};
use crate::race::RaceRank;
use harness::buffer::TestBuffer;
use harness::collective::CollectiveCommand;
use harness::comparison::competitor::Competitor;
use harness::comparison::nccl::{Nccl, Windows};
use harness::failure::CommandFailure;
use harness::nvshmem::Heap;
use reference::bounds::Bounds;
use reference::element::Summand;

/// The algorithm or the transport of our first candidate.
pub(super) type CollectiveNotes = String;

impl CollectiveRace {
    pub(super) fn measure_as<T: Summand>(
        &self,
        bench: &mut RaceRank<'_, '_, CollectiveNotes>,
    ) -> Result<(), CommandFailure> {
        let communicator = bench.communicator;
        let windows = self.windows(bench.nccl, communicator)?;
        let plain = self.plain::<T>(communicator)?;
        let shmem = self.with.contains(&With::Nvshmem).then(|| Heap::open(communicator)).transpose()?;
        for ((size, elems), plain) in self.sizes_elems.iter().copied().enumerate().zip(&plain) {
            let shape = self.shape(elems);
            let input: SymmetricBuffer<T> = communicator.symmetric(elems)?;
            let output: SymmetricBuffer<T> = communicator.symmetric(shape.output_elems())?;
            let of_shmem = match &shmem {
                Some(heap) => Some([heap.buffer::<T>(elems)?, heap.buffer::<T>(shape.output_elems())?]),
                None => None,
            };
            let data = CollectiveData::<T>::new(self.pace.seed, elems, self.pace.ranks);
            let checked = Checked { data: &data, shape, rank: communicator.rank() };
            let kernels = OwnMeans::Kernels(self.algorithm.into());
            let own =
                |name, how, judged| self.own_candidate(communicator, (name, how, judged), [&input, &output], checked);
            let mut candidates = vec![own(OURS, kernels, self.judged(communicator, elems, &[true]))];
            for with in self.with.iter().copied() {
                candidates.push(match (with, &of_shmem) {
                    (With::CopyEngine, _) => own(with.name(), OwnMeans::CopyEngine, Judged::Exact),
                    (With::Plain, _) => {
                        let judged = self.judged(communicator, elems, &[true, false]);
                        self.own_candidate(communicator, (with.name(), kernels, judged), plain.each_ref(), checked)
                    }
                    (With::Nvshmem, Some(operands)) => {
                        let judged = self.judged(communicator, elems, &[true]);
                        self.own_candidate(communicator, (with.name(), kernels, judged), operands.each_ref(), checked)
                    }
                    (With::Nvshmem, None) => continue,
                    (coded, _) => own(with.name(), OwnMeans::Kernels(coded.codec().into()), self.judged_coded(coded)),
                });
            }
            for (competitor, nccl) in self.pace.competitors.iter().zip(bench.nccl.into_iter().cycle()) {
                let windows = windows.as_ref().filter(|_| *competitor == Competitor::NcclSymmetric);
                let operands = match windows {
                    Some(windows) => windows.operands([input.len(), output.len()])?,
                    None => [input.borrow(), output.borrow()],
                };
                candidates.push(Contestant {
                    name: competitor.name(),
                    work: nccl.on(self.collective, operands.clone()),
                    operands: Box::new(operands),
                    judged: Judged::Rounded,
                    checked,
                });
            }
            let larger_bytes = self.larger_bytes(elems);
            let algorithm = match self.collective {
                CollectiveCommand::AllReduce => self.algorithm(communicator, true, larger_bytes).to_string(),
                _ => shape.transport(communicator, T::DTYPE),
            };
            bench.run(size, bench.operations(larger_bytes), &candidates, &algorithm)?;
        }
        shmem.map_or(Ok(()), |heap| heap.close())
    }

    fn windows(&self, nccl: Option<&Nccl>, communicator: &Communicator) -> Result<Option<Windows>, CommandFailure> {
        let nccl = nccl.filter(|_| self.pace.competitors.contains(&Competitor::NcclSymmetric));
        let windows = nccl.map(|nccl| nccl.windows(communicator, self.largest_bytes() as usize));
        Ok(windows.transpose()?)
    }

    /// A candidate of this library on these operands.
    fn own_candidate<'a, T: Summand, B: TestBuffer<T>>(
        &self,
        communicator: &'a Communicator,
        (name, how, judged): (&'static str, OwnMeans, Judged),
        operands: [&'a B; 2],
        checked: Checked<'a, T>,
    ) -> Contestant<'a, T>
    where
        &'a B: Operand<'a, T>,
    {
        let work = ours(communicator, self.collective, how, operands);
        Contestant { name, work, operands: Box::new(operands), judged, checked }
    }

    /// Input and output of each size for the candidate on plain memory; empty without such a candidate. All buffers
    /// live to the end: peers map the memory that a graph registers, and unmap it some time after the graph is dropped.
    fn plain<T: Element>(&self, communicator: &Communicator) -> symmetra::Result<Vec<[DeviceBuffer<T>; 2]>> {
        let buffer = |elems: usize| {
            let elems = if self.with.contains(&With::Plain) { elems } else { 0 };
            DeviceBuffer::new(communicator.device(), elems)
        };
        let of_size = |elems: &usize| Ok([buffer(*elems)?, buffer(self.shape(*elems).output_elems())?]);
        self.sizes_elems.iter().map(of_size).collect()
    }

    /// Our sums are in rank order and rounded once, except for some all-reduces. `direct`: whether peers can address the
    /// operands, in each mode.
    fn judged(&self, communicator: &Communicator, elems: usize, direct: &[bool]) -> Judged {
        let exact = |direct: &bool| {
            let algorithm = self.algorithm(communicator, *direct, self.bytes(elems));
            algorithm.is_exact(self.dtype, communicator.world_size())
        };
        match self.collective != CollectiveCommand::AllReduce || direct.iter().all(exact) {
            true => Judged::Exact,
            false => Judged::Rounded,
        }
    }

    fn judged_coded(&self, with: With) -> Judged {
        let codec = with.codec();
        Judged::Codec(Bounds { codec, reduction: Reduction::Sum, algorithm: codec.algorithm(self.pace.ranks) })
    }

    /// The algorithm of an all-reduce of a size: the requested algorithm, or the table's choice.
    fn algorithm(&self, communicator: &Communicator, direct: bool, bytes: u64) -> Algorithm {
        match self.algorithm {
            Algorithm::Auto => communicator.chosen(self.dtype, Reduction::Sum, direct, bytes),
            named => named,
        }
    }
}
