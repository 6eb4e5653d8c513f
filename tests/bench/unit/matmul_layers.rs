use super::*;

/// The layers of Llama-3 70B over 8 ranks, each rank's share.
#[test]
fn layers_of_a_model() {
    let share = |fusion| {
        let layers = GemmLayer::of_model(Model::Llama370b, &[4096, 16], fusion, 8).unwrap();
        layers.into_iter().map(|layer| (layer.name, layer.tokens, layer.inner, layer.columns)).collect::<Vec<_>>()
    };
    let layer = |name: &str, tokens, inner, columns| (name.to_owned(), tokens, inner, columns);
    let gathers = [("qkv", 8192, 1280), ("gate_up", 8192, 7168)];
    let sums = [("o", 1024, 8192), ("down", 3584, 8192)];
    for (fusion, layers) in [(Fusion::AllGather, gathers), (Fusion::ReduceScatter, sums), (Fusion::AllReduce, sums)] {
        let right: Vec<_> =
            layers.iter().flat_map(|(name, k, n)| [4096, 16].map(|tokens| layer(name, tokens, *k, *n))).collect();
        assert_eq!(share(fusion), right);
    }
}

#[test]
fn shares_differ_by_one_row_at_most() {
    let layer = |tokens| GemmLayer { name: "shape".to_owned(), tokens, inner: 3, columns: 5 };
    assert_eq!(layer(8).shares(4), [2, 2, 2, 2]);
    assert_eq!(layer(7).shares(4), [2, 2, 2, 1]);
    assert_eq!(layer(1).shares(3), [1, 0, 0]);
    assert_eq!((layer(7).moved_elems(Fusion::AllGather), layer(7).moved_elems(Fusion::AllReduce)), (21, 35));
}

#[test]
fn sizes_are_three_numbers() {
    assert_eq!("4096,8192, 7".parse(), Ok(GemmSizes([4096, 8192, 7])));
    for text in ["", "1,2", "1,2,3,4", "0,1,2", "1,2,x", "1,2,1048577"] {
        assert!(text.parse::<GemmSizes>().is_err(), "{text}");
    }
}
