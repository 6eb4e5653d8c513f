// Communication of a tensor parallel engine, as engines write it over cudarc's `nccl::safe`. `lib.rs` includes this text
// after each of two `use` lines.

/// A rank of a tensor parallel group.
pub struct TensorParallel {
    comm: Comm,
    /// The logits of all ranks.
    gathered: CudaSlice<f32>,
}

/// The bytes that rank 0 passes to the other ranks.
pub fn id_bytes() -> Result<Vec<u8>, String> {
    let id = Id::new().map_err(|error| format!("{:?}", error.0))?;
    Ok(id.internal().iter().map(|byte| *byte as u8).collect())
}

impl TensorParallel {
    /// Joins the group of these bytes.
    pub fn join(
        stream: Arc<CudaStream>,
        place: [usize; 2],
        bytes: &[u8; 128],
        vocabulary: usize,
    ) -> Result<Self, String> {
        let [rank, world_size] = place;
        let id = Id::uninit(bytes.map(|byte| byte as c_char));
        let gathered = stream.alloc_zeros(vocabulary).map_err(|error| error.to_string())?;
        let comm = Comm::from_rank(stream, rank, world_size, id).map_err(|error| format!("{:?}", error.0))?;
        Ok(Self { comm, gathered })
    }

    /// Opens all ranks from one thread.
    pub fn all(streams: Vec<Arc<CudaStream>>, vocabulary: usize) -> Result<Vec<Self>, String> {
        let comms = Comm::from_devices(streams).map_err(|error| format!("{:?}", error.0))?;
        let of = |comm: Comm| {
            let gathered = comm.stream().alloc_zeros(vocabulary).map_err(|error| error.to_string())?;
            Ok(Self { comm, gathered })
        };
        comms.into_iter().map(of).collect()
    }

    /// Sums the partial hidden states of a row parallel layer.
    pub fn sum(&self, partial: &CudaSlice<f32>, sums: &mut CudaSlice<f32>) -> Result<(), String> {
        self.comm.all_reduce(partial, sums, &ReduceOp::Sum).map_err(|error| format!("{:?}", error.0))?;
        Ok(())
    }

    /// Sums some tokens of a batch in place.
    pub fn sum_tokens(&self, hidden: &mut CudaSlice<f32>, elems: Range<usize>) -> Result<(), String> {
        let mut view = hidden.slice_mut(elems);
        self.comm.all_reduce_in_place(&mut view, &ReduceOp::Sum).map_err(|error| format!("{:?}", error.0))?;
        Ok(())
    }

    /// Gathers the logits of the vocabulary's parts.
    pub fn logits(&mut self, part: &CudaView<'_, f32>) -> Result<&CudaSlice<f32>, String> {
        self.comm.all_gather(part, &mut self.gathered).map_err(|error| format!("{:?}", error.0))?;
        Ok(&self.gathered)
    }

    /// Sends the token of the first rank to all others.
    pub fn token(&self, token: &mut CudaSlice<u32>) -> Result<(), String> {
        self.comm.broadcast_in_place(token, 0).map_err(|error| format!("{:?}", error.0))?;
        Ok(())
    }

    /// Passes hidden states to the next stage of a pipeline, and receives those of the previous stage.
    pub fn pass(&self, out: &CudaSlice<f32>, into: &mut CudaSlice<f32>) -> Result<(), String> {
        let (rank, world_size) = (self.comm.rank() as i32, self.comm.world_size() as i32);
        let (send, receive) = (out.slice(..), into.slice_mut(..));
        let mut group = self.comm.group();
        group.send(send, (rank + 1) % world_size).map_err(|error| format!("{:?}", error.0))?;
        group.recv(receive, (rank + world_size - 1) % world_size).map_err(|error| format!("{:?}", error.0))?;
        drop(group);
        Ok(())
    }

    /// Sends the cache of a request to the rank that decodes it.
    pub fn hand_over(&self, cache: &CudaSlice<f32>, peer: usize) -> Result<(), String> {
        self.comm.send(cache, peer as i32).map_err(|error| format!("{:?}", error.0))?;
        Ok(())
    }

    /// Receives the cache of a request.
    pub fn take_over(&self, cache: &mut CudaSlice<f32>, peer: usize) -> Result<(), String> {
        self.comm.recv(cache, peer as i32).map_err(|error| format!("{:?}", error.0))?;
        Ok(())
    }
}
