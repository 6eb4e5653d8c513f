//! C++ through cxx and through C has the results of direct calls from Rust. A kernel in C++ reaches the memory of all ranks.

#[test]
fn by_a_bridge() {
    assert_eq!(dependent::bridge::reduced(2.5).unwrap(), 2.5);
}

#[test]
fn by_c() {
    let config = symmetra::Config::default();
    assert_eq!(symmetra::required_bytes(8, &config), Ok(dependent::plain_required_bytes(8)));
}

#[test]
fn by_a_kernel() {
    use symmetra::bootstrap::Threads;
    use symmetra::{Communicator, Device, HostShape, Stream, launch_host};

    let rank = |bootstrap: Threads| {
        let device = Device::host().unwrap();
        let stream = Stream::new(&device).unwrap();
        let communicator = Communicator::open(bootstrap, &device, symmetra::Config::default()).unwrap();
        let buffer = communicator.symmetric::<u32>(3).unwrap();
        let heap = communicator.heap(&stream).unwrap();
        let counting = dependent::Counting { heap, counters: buffer.view(), pad: buffer.signals().view() };
        let shape = HostShape::default().blocks(2).threads(3);
        // SAFETY: the buffer outlives the work; kernels of all ranks change its words atomically.
        unsafe { launch_host(shape, dependent::count_threads, counting, &stream) }.unwrap();
        communicator.synchronize(&stream).unwrap();
        // Other blocks of the peers may still run.
        communicator.group().barrier().unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [2 * (1 + 2 + 3) + 3 * 10; 3]);
        communicator.close().unwrap();
    };
    std::thread::scope(|scope| {
        for bootstrap in Threads::new(3).unwrap() {
            scope.spawn(move || rank(bootstrap));
        }
    });
}
