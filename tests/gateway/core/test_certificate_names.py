"""Patterns for names in certificates."""

from __future__ import annotations

import pytest

from penstock.core.certificate_names import CertificateName, CertificatePattern, names_in


@pytest.mark.parametrize("text", ["", "web", "dns:", "ip:10.0.0.1", "DNS:web", "https://example.org", "spiffe:x"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match=r"^certificates: expected dns:, uri:, email: or cn: and a glob"):
        CertificatePattern.parse(text)


@pytest.mark.parametrize("pattern, name, taken", [
    ("dns:web.example", ("dns", "web.example"), True),
    ("dns:web.example", ("dns", "web.example.org"), False),
    ("dns:web.example", ("cn", "web.example"), False),
    ("dns:*.example", ("dns", "a.b.example"), True),
    ("dns:Web.Example", ("dns", "wEB.eXAMPLE"), True),
    ("email:*@example.org", ("email", "Ann@Example.org"), True),
    ("cn:Ann", ("cn", "ann"), False),
    ("cn:app-?", ("cn", "app-1"), True),
    ("cn:a:b", ("cn", "a:b"), True),
    ("uri:urn:app:*", ("uri", "urn:app:web"), True),
    ("spiffe://t/ns/*/sa/web", ("uri", "spiffe://t/ns/prod/sa/web"), True),
    ("spiffe://t/ns/*/sa/web", ("uri", "spiffe://t/ns/prod/x/sa/web"), False),
    ("spiffe://t/**", ("uri", "spiffe://t/ns/prod/x/sa/web"), True),
    ("spiffe://t/*", ("uri", "spiffe://T/x"), False),
])  # fmt: skip
def test_what_a_pattern_takes(pattern: str, name: tuple[str, str], taken: bool) -> None:
    assert CertificatePattern.parse(pattern).match(CertificateName(*name)) is taken


def test_the_names_of_a_certificate() -> None:
    certificate = {
        "subject": ((("organizationName", "Example"),), (("commonName", "web"),)),
        "subjectAltName": (
            ("DNS", "web.example"),
            ("IP Address", "10.0.0.1"),
            ("URI", "spiffe://t/x"),
            ("email", "a@b"),
        ),
    }
    assert names_in(certificate) == [("dns", "web.example"), ("uri", "spiffe://t/x"), ("email", "a@b"), ("cn", "web")]
    assert names_in(None) == names_in({}) == []
