use super::*;
use symmetra::half::bf16;

/// A product by its definition, in f64.
fn multiplied(left: &[bf16], right: &[bf16], [rows, inner, columns]: [usize; 3]) -> Vec<f64> {
    let element = |row: usize, column: usize| -> f64 {
        let terms = (0..inner).map(|k| left[row * inner + k].to_f64() * right[column * inner + k].to_f64());
        terms.sum()
    };
    (0..rows).flat_map(|row| (0..columns).map(move |column| element(row, column))).collect()
}

fn layer(tokens: usize, inner: usize, columns: usize) -> GemmLayer {
    GemmLayer { name: "shape".to_owned(), tokens, inner, columns }
}

#[test]
fn results_are_those_of_the_definition_and_exact() {
    for (ranks, inner) in [(1, 1), (2, 2), (3, 3), (4, 64), (8, 129)] {
        let layer = layer(7, inner, 5);
        let sizes = [7, inner, 5];
        let gathers = GemmOracle::new(3, Fusion::AllGather, &layer, ranks, FactorScales::None);
        let sums = GemmOracle::new(3, Fusion::ReduceScatter, &layer, ranks, FactorScales::None);
        let mut summed = vec![0.0; 7 * 5];
        for rank in 0..ranks {
            let product = |oracle: &GemmOracle| multiplied(&oracle.left(rank, 0..7), &oracle.right(rank), sizes);
            let result: Vec<bf16> = gathers.result(rank, 0..7);
            assert!(result.iter().zip(product(&gathers)).all(|(found, right)| found.to_f64() == right));
            assert_eq!(gathers.left::<bf16>(rank, 2..4), gathers.left::<bf16>(0, 0..7)[2 * inner..4 * inner]);
            let partial: Vec<bf16> = sums.product(rank);
            assert!(partial.iter().zip(product(&sums)).all(|(found, right)| found.to_f64() == right));
            summed.iter_mut().zip(product(&sums)).for_each(|(sum, value)| *sum += value);
        }
        let result: Vec<bf16> = sums.result(0, 1..6);
        assert!(result.iter().zip(&summed[5..]).all(|(found, right)| found.to_f64() == *right), "{ranks} ranks");
        assert!(summed.iter().all(|sum| sum.abs() <= 256.0));
    }
}

#[test]
fn scales_multiply_rows_and_columns() {
    let oracle = |scales| GemmOracle::new(5, Fusion::AllGather, &layer(6, 32, 16), 2, scales);
    let plain: Vec<bf16> = oracle(FactorScales::None).result(1, 0..6);
    for (scales, counts) in
        [(FactorScales::None, [0, 0]), (FactorScales::Tensor, [1, 1]), (FactorScales::Rows, [6, 16])]
    {
        let oracle = oracle(scales);
        let (rows, columns) = (oracle.left_scales(), oracle.right_scales());
        assert_eq!([rows.len(), columns.len()], counts);
        let of = |scales: &[f32], place: usize| scales.get(place).or(scales.first()).copied().unwrap_or(1.0);
        let result: Vec<bf16> = oracle.result(1, 0..6);
        for (place, (scaled, plain)) in result.iter().zip(&plain).enumerate() {
            assert_eq!(scaled.to_f32(), plain.to_f32() * of(rows, place / 16) * of(columns, place % 16));
        }
    }
}

/// A part of K that is left out or multiplied twice, rows of another part, products of a rank that is left out: most elements
/// change.
#[test]
fn defects_show() {
    let (rows, inner, columns) = (64, 256, 32);
    let oracle = GemmOracle::new(11, Fusion::ReduceScatter, &layer(rows, inner, columns), 4, FactorScales::None);
    let (left, right): (Vec<bf16>, Vec<bf16>) = (oracle.left(1, 0..rows), oracle.right(1));
    let sound = multiplied(&left, &right, [rows, inner, columns]);
    let unlike = |found: &[f64]| found.iter().zip(&sound).filter(|(a, b)| a != b).count();
    for part in (0..inner).step_by(64) {
        let mut less = left.clone();
        less.chunks_mut(inner).for_each(|row| row[part..part + 64].fill(bf16::ZERO));
        assert!(unlike(&multiplied(&less, &right, [rows, inner, columns])) > sound.len() / 2, "part {part}");
    }
    let mut moved = sound.clone();
    moved.rotate_left(16 * columns);
    assert!(unlike(&moved) > sound.len() / 2);
    let all: Vec<bf16> = oracle.result(0, 0..rows);
    let one: Vec<bf16> = oracle.product(3);
    let less: Vec<f64> = all.iter().zip(&one).map(|(all, one)| all.to_f64() - one.to_f64()).collect();
    assert!(less.iter().zip(&all).filter(|(a, b)| **a != b.to_f64()).count() > sound.len() / 2);
}
