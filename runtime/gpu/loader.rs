//! Finds and opens the Vulkan loader library at run time, so that a binary starts on machines without one.

use std::path::Path;

use super::error::{GpuError, GpuResult};

/// Operating systems whose loader has a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Platform {
    Android,
    Unix,
    Windows,
    Apple,
}

impl Platform {
    fn current() -> Platform {
        if cfg!(target_os = "android") {
            Platform::Android
        } else if cfg!(windows) {
            Platform::Windows
        } else if cfg!(any(target_os = "macos", target_os = "ios")) {
            Platform::Apple
        } else {
            Platform::Unix
        }
    }

    /// Library names in the order in which they are tried.
    fn library_names(self) -> &'static [&'static str] {
        match self {
            Platform::Android => &["libvulkan.so"],
            Platform::Unix => &["libvulkan.so.1", "libvulkan.so"],
            Platform::Windows => &["vulkan-1.dll"],
            Platform::Apple => &["libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"],
        }
    }
}

/// What to try: the explicit path alone when there is one, else the platform's names.
fn candidates(explicit: Option<&Path>, platform: Platform) -> Vec<String> {
    match explicit {
        Some(path) => vec![path.display().to_string()],
        None => platform.library_names().iter().map(|&name| name.to_owned()).collect(),
    }
}

/// Opens the loader at `explicit`, or under the platform's names.
///
/// # Errors
/// [`GpuError::LoaderMissing`] with all names tried.
pub(super) fn load(explicit: Option<&Path>) -> GpuResult<ash::Entry> {
    let tried = candidates(explicit, Platform::current());
    let mut reason = String::from("no name to try");
    for name in &tried {
        // SAFETY: the library is the system's Vulkan loader or one that the user names, whose
        // initialisers are trusted; `Instance` keeps the entry alive as long as its functions.
        match unsafe { ash::Entry::load_from(name) } {
            Ok(entry) => return Ok(entry),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(GpuError::LoaderMissing { tried, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tried_in_the_order_of_the_platform() {
        assert_eq!(candidates(None, Platform::Android), ["libvulkan.so"]);
        assert_eq!(candidates(None, Platform::Unix), ["libvulkan.so.1", "libvulkan.so"]);
        assert_eq!(candidates(None, Platform::Windows), ["vulkan-1.dll"]);
        let apple = candidates(None, Platform::Apple);
        assert_eq!(apple.first().map(String::as_str), Some("libvulkan.1.dylib"));
        assert_eq!(apple.last().map(String::as_str), Some("libMoltenVK.dylib"));
    }

    #[test]
    fn an_explicit_path_is_the_only_candidate() {
        assert_eq!(candidates(Some(Path::new("/opt/vk.so")), Platform::Unix), ["/opt/vk.so"]);
    }

    #[test]
    fn an_absent_loader_is_a_typed_error_that_says_what_to_install() {
        let error = load(Some(Path::new("/nonexistent/libvulkan.so"))).err().unwrap();
        assert!(matches!(error, GpuError::LoaderMissing { .. }));
        let text = error.to_string();
        assert!(text.contains("/nonexistent/libvulkan.so") && text.contains("libvulkan1"), "{text}");
    }
}
