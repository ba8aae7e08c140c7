//! Finds the SPIR-V of a kernel in the committed bundles. It never looks into the words.

use super::{Access, KernelRef, Template};

/// Why a kernel has no SPIR-V.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The template has no such point.
    #[error("kernel {template} has no variant {variant} with access={access}")]
    NoVariant {
        /// Template name.
        template: String,
        /// Number of the point.
        variant: u16,
        /// Way of access.
        access: Access,
    },
    /// The committed bundle does not match its index.
    #[error("the bundle of kernel {template} is corrupt; run `make shaders`")]
    Corrupt {
        /// Template name.
        template: String,
    },
}

/// The SPIR-V words of `kernel` for one way of access. Inflates the template's whole bundle: keep the result.
///
/// # Errors
/// When the template has no such variant.
pub fn spirv(kernel: KernelRef, access: Access) -> Result<Vec<u32>, BundleError> {
    let template = kernel.info();
    let name = || template.map_or_else(|| format!("#{}", kernel.template.0), |t| t.name.to_owned());
    let (Some(template), Some(variant)) = (template, kernel.variant(access)) else {
        return Err(BundleError::NoVariant { template: name(), variant: kernel.variant, access });
    };
    words(template, variant.first_word, variant.words)
        .ok_or_else(|| BundleError::Corrupt { template: template.name.to_owned() })
}

fn words(template: &Template, first_word: u32, count: u32) -> Option<Vec<u32>> {
    let all_words: usize = template.variants.iter().map(|v| v.words as usize).sum();
    let all = miniz_oxide::inflate::decompress_to_vec_with_limit(template.bundle, all_words.checked_mul(4)?)
        .ok()?;
    let begin = (first_word as usize).checked_mul(4)?;
    let end = begin.checked_add((count as usize).checked_mul(4)?)?;
    let (chunks, _) = all.get(begin..end)?.as_chunks::<4>();
    Some(chunks.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{TemplateId, kernels};
    use super::*;

    #[test]
    fn every_variant_is_found_and_is_spirv() {
        for (number, template) in kernels::TEMPLATES.iter().enumerate() {
            for variant in template.variants {
                let kernel = KernelRef {
                    template: TemplateId(u16::try_from(number).unwrap()),
                    variant: variant.point,
                };
                let words = spirv(kernel, variant.access).unwrap();
                assert_eq!(words.first(), Some(&0x0723_0203), "{} {}", template.name, variant.axes);
            }
        }
    }

    #[test]
    fn an_unknown_kernel_is_an_error() {
        let kernel = KernelRef { template: TemplateId(u16::MAX), variant: 0 };
        assert!(matches!(spirv(kernel, Access::Ssbo), Err(BundleError::NoVariant { .. })));
    }
}
