use proptest::prelude::*;

use super::*;

fn sha256(bytes: &[u8]) -> Hash {
    let mut hasher = Hasher::Sha256(Sha256::new());
    hasher.update(bytes);
    Hash::Sha256(hasher.finish())
}

#[test]
fn small_files_are_named_as_git_names_them() {
    let expected = Hash::GitBlob("ce013625030ba8dba906f756967f9e9ca394464a".into());
    let mut hasher = Hasher::new(&expected, 6);
    hasher.update(b"hello\n");
    assert_eq!(hasher.finish(), expected.as_str());
}

proptest! {
    /// Whatever the order, wherever it stops, and however often it is opened again.
    #[test]
    fn pieces_in_any_order_become_the_file(
        size in 0usize..300, piece in 1u32..90, cuts in prop::collection::vec((0usize..300, 1usize..120), 0..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251) as u8).collect();
        let hash = sha256(&bytes);
        let mut n_new = 0;
        for (start, len) in cuts {
            let part = Part::open(dir.path(), &hash, size as u64, piece).unwrap();
            let start = start.min(size);
            n_new += part.write(start as u64, &bytes[start..(start + len).min(size)]).unwrap();
            prop_assert_eq!(part.done_bytes(), n_new);
            prop_assert_eq!(bytes_left(dir.path(), &hash, size as u64), n_new);
        }
        let part = Part::open(dir.path(), &hash, size as u64, piece).unwrap();
        n_new += part.write(0, &bytes).unwrap();
        prop_assert_eq!(n_new, size as u64);
        prop_assert_eq!(part.hash(&hash).unwrap(), Some(hash.as_str().to_owned()));
        let blob = dir.path().join("blob");
        part.finish(&blob).unwrap();
        prop_assert_eq!(std::fs::read(blob).unwrap(), bytes);
        prop_assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }
}

#[test]
fn a_file_is_hashed_while_it_arrives_out_of_order() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    let hash = sha256(&bytes);
    let part = Part::open(dir.path(), &hash, 1000, 100).unwrap();
    std::thread::scope(|scope| {
        let hashing = scope.spawn(|| part.hash(&hash).unwrap());
        for piece in (0..10).rev() {
            part.write(piece * 100, &bytes[piece as usize * 100..][..100]).unwrap();
        }
        assert_eq!(hashing.join().unwrap().as_deref(), Some(hash.as_str()));
    });
}

#[test]
fn an_abandoned_file_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let hash = sha256(b"never");
    let part = Part::open(dir.path(), &hash, 5, 100).unwrap();
    std::thread::scope(|scope| {
        let hashing = scope.spawn(|| part.hash(&hash).unwrap());
        part.write(0, b"ne").unwrap();
        part.abandon();
        assert_eq!(hashing.join().unwrap(), None);
    });
}

#[test]
fn counts_of_bytes_that_are_not_there_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let hash = sha256(b"0123456789");
    let part = Part::open(dir.path(), &hash, 10, 5).unwrap();
    part.write(0, b"0123456789").unwrap();
    part.file.set_len(7).unwrap();
    let again = Part::open(dir.path(), &hash, 10, 5).unwrap();
    assert_eq!((again.missing(0), again.missing(1)), (None, Some((5, 10))));
    // A file of counts for another size, or cut short, says nothing.
    std::fs::write(&part.progress_path, b"loquat 1").unwrap();
    assert_eq!(Part::open(dir.path(), &hash, 10, 5).unwrap().done_bytes(), 0);
}
