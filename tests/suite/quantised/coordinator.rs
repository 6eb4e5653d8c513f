//! All-reduces of parallel groups that a setting sends through a codec.

use half::bf16;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Backend, Coordinator, EnvConfig, Environment, InitMethod, QuantisedAllReduce};
use symmetra::{
    Codec, Config, Determinism, DeviceBuffer, Error, Reduction, Result, RmsNorm, RowNorm, Stream, TunedCodec, Tuning,
};

use super::bounds::check;
use super::{Kind, config, inputs, meet};
use crate::support::device::{device, kind};

const LEN: usize = 5000;
/// Of a row, and of a wider output row.
const HIDDEN: usize = 50;
const WIDTH: usize = 56;

fn setting(codec: Codec, min_bytes: u64) -> QuantisedAllReduce {
    let mut setting = QuantisedAllReduce::new(codec);
    setting.min_bytes = Some(min_bytes);
    setting
}

fn environment(
    bootstrap: Threads,
    quantised: Option<QuantisedAllReduce>,
    determinism: Determinism,
) -> Result<Environment> {
    let mut config = config();
    config.determinism = determinism;
    over(bootstrap, quantised, config)
}

fn over(bootstrap: Threads, quantised: Option<QuantisedAllReduce>, config: Config) -> Result<Environment> {
    let mut asked = EnvConfig::default();
    asked.device = Some(device(bootstrap.rank()));
    asked.tensor_parallel_size = bootstrap.world_size();
    asked.init_method = InitMethod::bootstrap(bootstrap);
    asked.communicator = config;
    asked.quantised = quantised;
    Environment::init(asked)
}

/// Which backend explains a sum of bf16 of this size.
fn explained(group: &Coordinator, bytes: u64) -> Vec<Backend> {
    let sum = |backend: &symmetra::environment::Explanation| {
        let of = |served: &symmetra::environment::Served| {
            served.holds(symmetra::Operation::AllReduce, Some(Reduction::Sum), symmetra::Dtype::BF16, false, bytes)
        };
        backend.serves.iter().any(of)
    };
    group.explain().iter().filter(|backend| sum(backend)).map(|backend| backend.backend).collect()
}

/// A call within the limits has the bits of a call that names the codec: eager, bound and in a graph. Smaller calls and
/// calls of the group through own kernels have the bits of plain sums.
#[test]
fn a_setting_sends_large_sums_through_its_codec() {
    for (world, codec) in [(2, Codec::Int4), (3, Codec::Int8)] {
        let data = inputs::<bf16>(Kind::Normal, world, LEN, 4);
        let results = meet(world, |bootstrap| {
            let bytes = 2 * LEN as u64;
            let environment = environment(bootstrap, Some(setting(codec, bytes)), Determinism::PerAlgorithm).unwrap();
            let tp = environment.tp();
            let stream = Stream::new(tp.device()).unwrap();
            let input = DeviceBuffer::from_slice(&data[tp.rank()], &stream).unwrap();
            let output = DeviceBuffer::<bf16>::new(tp.device(), LEN).unwrap();
            let read = |len: usize| {
                tp.synchronize(&stream).unwrap();
                let result = output.read(&stream).unwrap()[..len].to_vec();
                output.write(&vec![bf16::ZERO; LEN], &stream).unwrap();
                result
            };
            assert_eq!(explained(tp, bytes), [Backend::Quantised]);
            assert_eq!(explained(tp, bytes - 1), [Backend::Own]);
            tp.all_reduce_with(codec, &input, &output, &stream).unwrap();
            let named = read(LEN);
            tp.all_reduce(&input, &output, &stream).unwrap();
            assert!(read(LEN) == named, "an eager call");
            tp.bind_all_reduce(&input, &output).unwrap().enqueue(&stream).unwrap();
            assert!(read(LEN) == named, "a bound call");
            let graph = tp.capture(&stream, |capture| tp.all_reduce(&input, &output, capture)).unwrap();
            graph.launch(&stream).unwrap();
            assert!(read(LEN) == named, "a graph");
            tp.through(Backend::Quantised).unwrap().all_reduce(&input, &output, &stream).unwrap();
            assert!(read(LEN) == named, "a call through the backend");
            let weight = DeviceBuffer::from_slice(&[bf16::ONE; HIDDEN], &stream).unwrap();
            let rows = || RowNorm::new(&input, &weight, RmsNorm::new(1e-6));
            tp.all_reduce_norm(rows().residual_out(&output), &stream).unwrap();
            assert!(read(LEN) == named, "the sum of a norm");
            let own = tp.through(Backend::Own).unwrap();
            // The sum has no place in one piece.
            let wide = [(); 2].map(|()| DeviceBuffer::<bf16>::new(tp.device(), LEN / HIDDEN * WIDTH).unwrap());
            tp.all_reduce_norm(rows().output(&wide[0]).padded_to(WIDTH), &stream).unwrap();
            own.all_reduce_norm(rows().output(&wide[1]).padded_to(WIDTH), &stream).unwrap();
            tp.synchronize(&stream).unwrap();
            let [by_choice, by_own] = wide.each_ref().map(|wide| wide.read(&stream).unwrap());
            assert!(by_choice == by_own, "a norm of wider rows");
            let forced = tp.through(Backend::Quantised).unwrap();
            let error = forced.all_reduce_norm(rows().output(&wide[0]).padded_to(WIDTH), &stream).unwrap_err();
            assert!(
                matches!(&error, Error::Unsupported { .. }) && error.to_string().contains("in one piece"),
                "{error}"
            );
            own.all_reduce(&input, &output, &stream).unwrap();
            let plain = read(LEN);
            assert!(plain != named);
            let (some, other) = (input.borrow().slice(..LEN - 1).unwrap(), output.borrow().slice(..LEN - 1).unwrap());
            tp.all_reduce(&some, &other, &stream).unwrap();
            assert!(read(LEN - 1) == plain[..LEN - 1], "a smaller call");
            // Calls that the codec does not carry are served by the next backend.
            tp.all_reduce_with(Reduction::Max, &input, &output, &stream).unwrap();
            let greatest = (0..LEN).map(|index| data.iter().map(|input| input[index]).fold(bf16::MIN, bf16::max));
            assert!(read(LEN) == greatest.collect::<Vec<_>>(), "a maximum");
            let refused = tp.through(Backend::Quantised).unwrap();
            let error = refused.all_reduce_with(Reduction::Max, &input, &output, &stream).unwrap_err();
            assert!(error.to_string().contains("sums and averages"), "{error}");
            let set = environment.settings().iter().find(|setting| setting.name == "quantised").unwrap();
            assert_eq!(set.value, format!("{codec} from {bytes} bytes"));
            drop(graph);
            environment.close().unwrap();
            named
        });
        let inputs: Vec<&[bf16]> = data.iter().map(Vec::as_slice).collect();
        let results: Vec<&[bf16]> = results.iter().map(Vec::as_slice).collect();
        check(&codec.into(), &inputs, &results).unwrap();
    }
}

/// A setting without a smallest message uses the smallest message of a tuning.
#[test]
fn a_tuning_says_from_where_on_a_codec_serves() {
    let codec =
        |codec: Codec, from_bytes| TunedCodec::default().world_size(2).codec(codec.to_string()).from_bytes(from_bytes);
    let tuning = Tuning::default()
        .kind(kind().name().to_owned())
        .codecs(vec![codec(Codec::Int8, Some(8192)), codec(Codec::Int4, None)]);
    for (codec, at_8191, at_8192) in
        [(Codec::Int8, Backend::Own, Backend::Quantised), (Codec::Int4, Backend::Own, Backend::Own)]
    {
        meet(2, |bootstrap| {
            let mut config = config();
            config.tuning = Some(tuning.clone());
            let environment = over(bootstrap, Some(QuantisedAllReduce::new(codec)), config).unwrap();
            assert_eq!([8191, 8192].map(|bytes| explained(environment.tp(), bytes)), [[at_8191], [at_8192]]);
            environment.close().unwrap();
        });
    }
}

#[test]
fn ranks_with_different_settings_do_not_open() {
    for other in [None, Some(setting(Codec::Int6, 1 << 20)), Some(setting(Codec::Int8, 1))] {
        meet(2, |bootstrap| {
            let mine = if bootstrap.rank() == 0 { Some(setting(Codec::Int8, 1 << 20)) } else { other };
            let error = environment(bootstrap, mine, Determinism::PerAlgorithm).unwrap_err();
            let words = error.to_string();
            assert!(matches!(error, Error::Mismatch { .. }), "{words}");
            assert!(words.contains("the quantised all-reduce") && words.contains("int8 from 1048576 bytes"), "{words}");
        });
    }
}

/// A setting whose limits are out of order opens nothing. Exact determinism keeps plain sums.
#[test]
fn settings_that_cannot_serve() {
    meet(2, |bootstrap| {
        let mut wrong = setting(Codec::Fp8, 100);
        wrong.max_bytes = Some(99);
        let error = environment(bootstrap, Some(wrong), Determinism::PerAlgorithm).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument { .. }) && error.to_string().contains("100 to 99"), "{error}");
    });
    meet(3, |bootstrap| {
        let environment = environment(bootstrap, Some(setting(Codec::Int4, 0)), Determinism::Exact).unwrap();
        let tp = environment.tp();
        assert_eq!(explained(tp, 1 << 20), [Backend::Own]);
        assert!(tp.explain()[0].to_string().contains("determinism is exact"), "{}", tp.explain()[0]);
        let stream = Stream::new(tp.device()).unwrap();
        let buffer = DeviceBuffer::from_slice(&[bf16::from_f32(1.0 + tp.rank() as f32 / 128.0); 64], &stream).unwrap();
        tp.all_reduce_in_place(&buffer, &stream).unwrap();
        tp.synchronize(&stream).unwrap();
        // 3 + 3 / 128, rounded once.
        assert_eq!(buffer.read(&stream).unwrap(), [bf16::from_f32(3.0 + 3.0 / 128.0); 64]);
        environment.close().unwrap();
    });
}
