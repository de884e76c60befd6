use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A repository with these files, as this program or another leaves it.
fn fill(cache: &Cache, id: &RepoId, files: &[(&str, &[u8])]) {
    for (i, (name, bytes)) in files.iter().enumerate() {
        let hash = Hash::parse(&format!("{i:040x}")).unwrap();
        write(&cache.blobs(id).join(hash.as_str()), bytes);
        cache.link(id, COMMIT, name, &hash).unwrap();
    }
    cache.set_ref(id, "main", COMMIT).unwrap();
}

#[test]
fn a_model_is_found_only_when_all_of_it_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("hub"));
    let model = ModelRef::parse("fake/sharded").unwrap();
    let index = br#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#;
    let files: [(&str, &[u8]); 4] = [
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        (select::INDEX, index),
        ("m-1.safetensors", b"1"),
    ];
    fill(&cache, &model.id, &files);
    assert_eq!(cache.find(&model), None);
    let hash = Hash::parse(&"e".repeat(64)).unwrap();
    write(&cache.blobs(&model.id).join(hash.as_str()), b"22");
    cache.link(&model.id, COMMIT, "m-2.safetensors", &hash).unwrap();
    let found = cache.find(&model).unwrap();
    assert_eq!(
        (found.path.as_path(), found.commit.as_str()),
        (cache.snapshot(&model.id, COMMIT).as_path(), COMMIT)
    );
    assert_eq!(cache.list(), [found]);
    let pinned = ModelRef::parse(&format!("fake/sharded@{COMMIT}")).unwrap();
    assert!(cache.find(&pinned).is_some());
    assert_eq!(cache.find(&ModelRef::parse("fake/sharded@other").unwrap()), None);

    // A link to a blob that is gone is no file.
    fs::remove_file(cache.blobs(&model.id).join(hash.as_str())).unwrap();
    assert_eq!(cache.find(&model), None);
    assert!(cache.remove(&model.id).unwrap().unwrap() > 0);
    assert_eq!(cache.remove(&model.id).unwrap(), None);
}

#[test]
fn each_gguf_file_of_a_repository_is_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("hub"));
    let id = RepoId::parse("some/model-GGUF").unwrap();
    let files: [(&str, &[u8]); 4] = [
        ("M-Q4_K_M.gguf", b"1"),
        ("M-Q8_0.gguf", b"22"),
        ("M-BF16-00001-of-00002.gguf", b"only the first"),
        ("mmproj-F16.gguf", b"eyes"),
    ];
    fill(&cache, &id, &files);
    let listed: Vec<_> = cache.list().into_iter().map(|model| model.path).collect();
    let snapshot = cache.snapshot(&id, COMMIT);
    assert_eq!(listed, [snapshot.join("M-Q4_K_M.gguf"), snapshot.join("M-Q8_0.gguf")]);
    let find = |name: &str| cache.find(&ModelRef::parse(name).unwrap()).map(|model| model.path);
    assert_eq!(find("some/model-GGUF:q8_0"), Some(snapshot.join("M-Q8_0.gguf")));
    assert_eq!(find("some/model-GGUF:BF16"), None);
}

#[cfg(unix)]
#[test]
fn links_are_relative_so_that_the_cache_can_be_moved() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("hub"));
    let id = RepoId::parse("fake/tiny").unwrap();
    fill(&cache, &id, &[("config.json", b"{}"), ("sub/dir/x.json", b"x")]);
    let link = |name: &str| fs::read_link(cache.snapshot(&id, COMMIT).join(name)).unwrap();
    assert_eq!(link("config.json"), Path::new(&format!("../../blobs/{:040x}", 0)));
    assert_eq!(link("sub/dir/x.json"), Path::new(&format!("../../../../blobs/{:040x}", 1)));
    fs::rename(dir.path().join("hub"), dir.path().join("moved")).unwrap();
    let moved = Cache::new(dir.path().join("moved"));
    assert_eq!(fs::read(moved.snapshot(&id, COMMIT).join("sub/dir/x.json")).unwrap(), b"x");
    // Linking again changes nothing.
    moved.link(&id, COMMIT, "config.json", &Hash::parse(&format!("{:040x}", 0)).unwrap()).unwrap();
}

#[test]
fn a_damaged_blob_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("hub"));
    let id = RepoId::parse("fake/tiny").unwrap();
    for (name, hash, bytes) in [
        ("good.txt", "ce013625030ba8dba906f756967f9e9ca394464a", b"hello\n".as_slice()),
        ("page.txt", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", b"<Error>"),
    ] {
        write(&cache.blobs(&id).join(hash), bytes);
        cache.link(&id, COMMIT, name, &Hash::parse(hash).unwrap()).unwrap();
    }
    let checked = cache.verify(&id, |_, _| {}).unwrap();
    let found: Vec<_> = checked.iter().map(|blob| (blob.name.as_str(), blob.is_right)).collect();
    assert_eq!(found, [("good.txt", true), ("page.txt", false)]);
}
