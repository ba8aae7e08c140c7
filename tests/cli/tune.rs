//! `tune`: what it finds is kept, and a kernel that is wrong is a failed check.

use crate::support::{Folder, fixture, tool};

#[test]
fn what_is_found_is_kept_in_the_folder() {
    let (folder, model) = (Folder::new("tune"), fixture("linear_const.pt2"));
    let cache = folder.path("kernels");
    let tune = ["tune", &model, "--cache-dir", &cache, "--json"];
    let document = tool(&tune).passes().json();
    let choices = document["choices"].as_array().unwrap();
    assert!(!choices.is_empty() && document["stored"] == true, "{document}");
    for choice in choices {
        let tried = choice["tried"].as_array().unwrap();
        assert!(
            tried.len() > 1 && tried.iter().all(|tried| tried["best_us"].as_f64().unwrap() > 0.0),
            "{choice}"
        );
        assert!(tried.iter().any(|tried| tried["candidate"] == choice["picked"]), "{choice}");
    }
    let files: Vec<String> = std::fs::read_dir(&cache)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(files.iter().any(|name| name.starts_with("tuning-")), "{files:?}");
    let known = tool(&tune).passes().json();
    assert_eq!((known["choices"].as_array().unwrap().len(), &known["known"]), (0, &choices.len().into()));
    let text = tool(&["tune", &model, "--cache-dir", &cache, "--again", "--budget", "1"]).passes().stdout;
    assert!(text.contains("matmul") && text.contains(" us") && text.contains("kept"), "{text}");
    let text = tool(&["tune", &model, "--budget", "1"]).passes().stdout;
    assert!(text.contains("--cache-dir"), "{text}");
}

#[test]
fn a_wrong_kernel_is_named() {
    let text = tool(&["tune", &fixture("linear_const.pt2"), "--break-work-group", "matmul", "16", "4"])
        .fails()
        .stdout;
    assert!(text.lines().any(|line| line.starts_with("WRONG matmul ") && line.contains(" 16x4: ")), "{text}");
}
