use super::*;
use std::fs;

/// A safetensors file with this header and `data_len` zero bytes of data.
fn file(header: &str, data_len: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data_len, 0);
    bytes
}

fn open(bytes: &[u8]) -> Result<Checkpoint, WeightsError> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    Checkpoint::open(dir.path())
}

fn error(bytes: &[u8]) -> String {
    open(bytes).err().expect("the file is refused").to_string()
}

const ONE: &str = r#"{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;

#[test]
fn a_weight_is_read_in_its_shape_and_only_in_it() {
    let checkpoint = open(&file(ONE, 16)).unwrap();
    assert_eq!(checkpoint.weight("w", &[2, 2]).unwrap().to_f32(), [0.0; 4]);
    let shape = checkpoint.weight("w", &[4, 1]).unwrap_err().to_string();
    assert_eq!(shape, "weight w has shape [2, 2], the config says [4, 1]");
    assert!(checkpoint.weight("v", &[1]).unwrap_err().to_string().contains("weight v is missing"));
}

#[test]
fn every_format_widens_to_the_same_numbers() {
    let values = [0.5f32, -3.25, 0.0, 1024.0];
    let mut out = [0.0; 4];
    let bytes: Vec<u8> = values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
    WeightFormat::Bf16.widen(&bytes, &mut out);
    assert_eq!(out, values);
    let bytes: Vec<u8> = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
    WeightFormat::F16.widen(&bytes, &mut out);
    assert_eq!(out, values);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    WeightFormat::F32.widen(&bytes, &mut out);
    assert_eq!(out, values);
}

#[test]
fn damaged_and_hostile_files_are_refused() {
    assert!(error(b"").contains("only 0 bytes"));
    assert!(error(b"1234567").contains("only 7 bytes"));
    assert!(error(&u64::MAX.to_le_bytes()).contains("its header claims"));
    assert!(error(&file(ONE, 15)).contains("is damaged"), "truncated");
    assert!(error(&file(ONE, 17)).contains("is damaged"), "trailing bytes");
    assert!(error(&file("{", 0)).contains("is damaged"));
    let overlap = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#;
    assert!(error(&file(overlap, 12)).contains("is damaged"));
    let twice = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    assert!(error(&file(twice, 4)).contains("appears twice"));
    let overflow = r#"{"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,4]}}"#;
    assert!(error(&file(overflow, 4)).contains("is damaged"));
    let integers = open(&file(r#"{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}"#, 8)).unwrap();
    assert!(integers.weight("a", &[1]).unwrap_err().to_string().contains("stored as I64"));
}

#[test]
fn an_index_cannot_point_outside_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("model.safetensors.index.json");
    let refused = |map: &str| {
        fs::write(&index, format!(r#"{{"weight_map":{map}}}"#)).unwrap();
        Checkpoint::open(dir.path()).err().expect("the index is refused").to_string()
    };
    assert!(refused(r#"{"a":"../model.safetensors"}"#).contains("not the name of"));
    assert!(refused(r#"{"a":"/etc/model.safetensors"}"#).contains("not the name of"));
    assert!(refused(r#"{"a":7}"#).contains("not a file name"));
    assert!(refused(r#"{"a":"gone.safetensors"}"#).contains("named by"));
    assert!(refused("[]").contains("no weight_map"));
}

#[test]
fn values_that_are_not_numbers_are_named() {
    let mut bytes = file(ONE, 0);
    bytes.extend([1.0f32, f32::NAN, 0.0, 0.0].iter().flat_map(|v| v.to_le_bytes()));
    let error = open(&bytes).unwrap().values("w", &[2, 2]).unwrap_err().to_string();
    assert!(error.starts_with("weight w holds values that are not numbers"));
}
