use super::*;

fn work(world: usize, rows: usize, inner: usize, columns: usize, part_elems: usize) -> Work {
    let product = Product::new(inner, columns, Numeric::BF16);
    Work { world, products_us: product_us(&product, rows), part_bytes: 2 * part_elems as u64 }
}

/// Cells of the table in PERFORMANCE.md: product, copies and bound of Llama-3 70B, 4096 rows.
#[test]
fn the_bound_is_the_longer_of_product_and_copies() {
    let (rows, hidden) = (4096, 8192);
    let qkv = work(4, rows, hidden, 2560, rows / 4 * hidden).gathered();
    assert_eq!((qkv.bound_us).round(), 236.0);
    let narrow = work(8, rows, hidden, 1280, rows / 8 * hidden).gathered();
    assert_eq!(narrow.bound_us.round(), 163.0);
}

#[test]
fn part_by_part_pays_for_many_rows_alone() {
    for world in [2, 4, 8] {
        for (rows, pays) in [(8 * world, false), (16384, true)] {
            let gathered = work(world, rows, 8192, 10240 / world, rows / world * 8192).gathered();
            assert_eq!(gathered.pipelines(), pays, "{world} ranks, {rows} rows: {gathered:?}");
        }
    }
}

#[test]
fn no_way_beats_the_bound() {
    for world in 2..=16 {
        for rows in [world, 128 * world, 4096 * world] {
            let all = work(world, rows, 1024, 8192, rows / world * 8192);
            for cost in [all.gathered(), all.scattered(), all.all_reduced()] {
                assert!(cost.sequence_us > cost.bound_us && cost.pipeline_us > cost.bound_us, "{cost:?}");
            }
        }
    }
}
