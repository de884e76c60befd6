# The formula of a Homebrew tap; `packaging/macos/formula.sh` fills it for a release.
class Loquat < Formula
  desc "Terminal assistant that runs Qwen3.5-family models on your own machine"
  homepage "{{HOMEPAGE}}"
  version "{{VERSION}}"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    url "{{URL}}/loquat-{{VERSION}}-macos-universal.tar.xz"
    sha256 "{{HASH_MACOS}}"
  end

  on_linux do
    on_intel do
      url "{{URL}}/loquat-{{VERSION}}-linux-x86_64.tar.xz"
      sha256 "{{HASH_LINUX_X86_64}}"
    end
    on_arm do
      url "{{URL}}/loquat-{{VERSION}}-linux-aarch64.tar.xz"
      sha256 "{{HASH_LINUX_AARCH64}}"
    end
  end

  def install
    bin.install "files/bin/loquat"
    man1.install Dir["files/share/man/man1/*"]
    doc.install Dir["files/share/doc/loquat/*"]
    bash_completion.install "files/share/bash-completion/completions/loquat"
    zsh_completion.install "files/share/zsh/site-functions/_loquat"
    fish_completion.install "files/share/fish/vendor_completions.d/loquat.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/loquat --version")
    # The built-in model needs no download.
    assert_match(/\S/, shell_output("#{bin}/loquat run --device cpu 'How do I attach a picture?'"))
  end
end
