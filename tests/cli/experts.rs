//! The output of `info` for experts, on the CPU.

use super::symmetra;

#[test]
fn info_of_experts() {
    let info = symmetra("info --json --device host --ranks 2 --experts 8,2,64 --tokens 16").ok().objects().remove(0);
    let experts = &info["experts"];
    assert_eq!((&experts["experts"], &experts["tokens"]), (&8.into(), &16.into()), "{experts}");
    let config = |wire| {
        let mut config = symmetra::experts::ExpertConfig::new(8, 2, 64, 16);
        config.wire = wire;
        symmetra::experts::expert_bytes(2, &symmetra::Config::default(), &config).unwrap()
    };
    let f8 = symmetra::experts::Wire::F8(symmetra::experts::Scales::F32);
    for (choice, (wire, row_bytes, heap_bytes)) in experts["wires"]
        .as_array()
        .unwrap()
        .iter()
        .zip([("f8", 68, config(f8)), ("same", 128, config(symmetra::experts::Wire::Same))])
    {
        assert_eq!((&choice["wire"], &choice["row_bytes"]), (&wire.into(), &row_bytes.into()), "{choice}");
        assert_eq!(choice["heap_bytes"], heap_bytes, "{choice}");
    }
    assert_eq!((&experts["wires"][0]["method"], &experts["other_backends"]), (&"packets".into(), &"gather".into()));
    let choices = experts["choices"].as_array().unwrap();
    assert_eq!((&choices[0]["method"], &choices[1]["method"]), (&"packets".into(), &"direct".into()), "{experts}");
    assert!(choices[0]["up_to_bytes"].is_u64() && choices[1]["up_to_bytes"].is_null(), "{experts}");
    let run = symmetra("info --device host --experts deepseek").ok();
    run.fits(80);
    assert!(run.stdout.contains("256 experts on 4 ranks: 128 tokens a rank, 8 experts a token"), "{}", run.stdout);
    assert!(
        run.stdout.contains("by own kernels packets up to ") && run.stdout.contains("direct beyond"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("by other backends gather"), "{}", run.stdout);
    assert!(symmetra("info --json --device host").ok().objects()[0]["experts"].is_null());
}

#[test]
fn wrong_usage() {
    symmetra("info --experts 8,2").refused(2, &["--experts", "deepseek, mixtral"]);
    symmetra("info --experts 8,65,64").refused(2, &["65", "1 to 64"]);
    symmetra("info --experts 8,2,64 --tokens 0").refused(2, &["--tokens", "1048576"]);
    symmetra("info --tokens 8").refused(2, &["--experts"]);
}
