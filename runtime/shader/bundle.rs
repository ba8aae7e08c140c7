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

/// The SPIR-V of all variants of one template, inflated.
pub struct Bundle {
    template: &'static Template,
    bytes: Vec<u8>,
}

impl Bundle {
    /// Inflates the bundle of `template`.
    ///
    /// # Errors
    /// When the committed bundle does not match its index.
    pub fn inflate(template: &'static Template) -> Result<Bundle, BundleError> {
        let all_words: usize = template.variants.iter().map(|v| v.words as usize).sum();
        let bytes =
            miniz_oxide::inflate::decompress_to_vec_with_limit(template.bundle, all_words.saturating_mul(4));
        let bytes = bytes.map_err(|_| BundleError::Corrupt { template: template.name.to_owned() })?;
        Ok(Bundle { template, bytes })
    }

    /// The words of `kernel`, which is of this template, for one way of access.
    ///
    /// # Errors
    /// When the template has no such variant.
    pub fn words(&self, kernel: KernelRef, access: Access) -> Result<Vec<u32>, BundleError> {
        let name = || self.template.name.to_owned();
        let is_mine = kernel.info().is_some_and(|template| std::ptr::eq(template, self.template));
        let variant = kernel.variant(access).filter(|_| is_mine).ok_or_else(|| BundleError::NoVariant {
            template: name(),
            variant: kernel.variant,
            access,
        })?;
        let begin = (variant.first_word as usize).saturating_mul(4);
        let end = begin.saturating_add((variant.words as usize).saturating_mul(4));
        let bytes = self.bytes.get(begin..end).ok_or_else(|| BundleError::Corrupt { template: name() })?;
        let (chunks, _) = bytes.as_chunks::<4>();
        Ok(chunks.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }
}

/// The SPIR-V words of `kernel` for one way of access. Inflates the template's whole bundle: keep the result, or a
/// [`Bundle`] where several variants are wanted.
///
/// # Errors
/// When there is no such template, or it has no such variant.
pub fn spirv(kernel: KernelRef, access: Access) -> Result<Vec<u32>, BundleError> {
    let template = kernel.info().ok_or_else(|| BundleError::NoVariant {
        template: format!("#{}", kernel.template.0),
        variant: kernel.variant,
        access,
    })?;
    Bundle::inflate(template)?.words(kernel, access)
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
