//! Dispatch and combine of tensors on GPUs.

use candle_core::cuda::cudarc::driver::CudaView;
use candle_core::{CudaDevice, Result, Tensor, WithDType};
use symmetra::experts::{Combine, Received, Routing};

use super::{Arrived, Dispatched, Experts, Sent};
use crate::cuda::{Memory, Value, with_view};
use crate::error::wrap;

impl Experts {
    pub(super) fn dispatch_on_cuda<T: Value + WithDType>(
        &self,
        sent: &Sent<'_>,
        cuda: &CudaDevice,
    ) -> Result<Arrived<'_>> {
        let (rank, hidden, capacity) = (self.group.parts(), sent.rows.dim(1)?, self.experts.capacity());
        let memory = Memory::new(rank, cuda)?;
        let mut room = memory.room::<T>(capacity * hidden)?;
        let mut send = |ids: CudaView<'_, i64>, rows: CudaView<'_, T>, weights: Option<CudaView<'_, f32>>| {
            let (ids, rows) = (memory.input(&ids)?, memory.input(&rows)?);
            let weights = weights.as_ref().map(|weights| memory.input(weights)).transpose()?;
            let mut written = room.slice_mut(..capacity * hidden);
            let written = memory.output(&mut written)?;
            let routing = match &weights {
                Some(weights) => Routing::new(&*ids).weights(&**weights),
                None => Routing::new(&*ids),
            };
            self.experts.dispatch(&routing, &*rows, &Received::rows(&*written), &rank.stream).map_err(wrap)
        };
        let routed = with_view(sent.ids, |ids| {
            with_view(sent.rows, |rows| match sent.weights {
                Some(weights) => with_view(weights, |weights| send(ids, rows, Some(weights))),
                None => send(ids, rows, None),
            })
        })?;
        let counts = routed.counts().map_err(wrap)?;
        let rows = memory.tensor(room, (capacity, hidden)).narrow(0, 0, counts.iter().sum())?;
        Ok(Arrived { routed, rows, counts })
    }
}

impl Dispatched<'_> {
    pub(super) fn combine_on_cuda<T: Value>(&self, results: &Tensor, cuda: &CudaDevice) -> Result<Tensor> {
        let (rank, shape) = (self.experts.group.parts(), (self.tokens, results.dim(1)?));
        let memory = Memory::new(rank, cuda)?;
        let elems = shape.0 * shape.1;
        let mut sums = memory.room::<T>(elems)?;
        with_view(results, |results| {
            let results = memory.input::<T>(&results)?;
            let mut written = sums.slice_mut(..elems);
            let written = memory.output(&mut written)?;
            let call = self.arrived.routed.combine(&*results, &*written, Combine::default(), &rank.stream);
            call.map_err(wrap)
        })?;
        Ok(memory.tensor(sums, shape))
    }
}
