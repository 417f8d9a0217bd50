"""What every store of tokens must do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.model import StoredToken
from gateway.store.contract import TokenStore
from tests.store.retention_suite import race

TOKEN = StoredToken(
    id="a1",
    name="ann $where",
    grants=("read:*", "admin:shop.$x/*"),
    secret_sha256="5e" * 32,
    created_us=2_000_000,
    expires_us=3_000_000,
)


class TokensContract:
    """Subclasses give the fixture ``tokens``."""

    def test_a_token_is_read_back_as_it_was_made(self, tokens: TokenStore) -> None:
        assert tokens.token("a1") is None
        tokens.create_token(TOKEN)
        assert tokens.token("a1") == TOKEN
        forever = replace(TOKEN, id="a2", expires_us=None, grants=())
        tokens.create_token(forever)
        assert tokens.token("a2") == forever

    def test_a_token_id_can_be_used_only_once(self, tokens: TokenStore) -> None:
        tokens.create_token(TOKEN)
        with pytest.raises(ValueError, match="id"):
            tokens.create_token(replace(TOKEN, name="bob"))
        assert tokens.token("a1") == TOKEN

    def test_several_tokens_are_found_by_their_ids(self, tokens: TokenStore) -> None:
        made = [replace(TOKEN, id=f"{number:016x}") for number in range(3)]
        for each in made:
            tokens.create_token(each)
        wanted = {made[0].id, made[2].id, "f" * 16}
        assert tokens.tokens_of(wanted) == {made[0].id: made[0], made[2].id: made[2]}
        assert tokens.tokens_of(set()) == {}

    def test_tokens_are_listed_by_age(self, tokens: TokenStore) -> None:
        assert list(tokens.tokens()) == []
        for number, created_us in (("b", 3), ("a", 3), ("c", 1)):
            tokens.create_token(replace(TOKEN, id=number, created_us=created_us))
        assert [each.id for each in tokens.tokens()] == ["c", "a", "b"]

    def test_a_revoked_token_keeps_its_first_revocation_time(self, tokens: TokenStore) -> None:
        tokens.create_token(TOKEN)
        revoked = replace(TOKEN, revoked_us=5)
        assert tokens.revoke_token("a1", 5) == revoked
        assert tokens.revoke_token("a1", 7) == revoked
        assert tokens.token("a1") == revoked
        assert list(tokens.tokens()) == [revoked]
        assert tokens.revoke_token("a2", 5) is None

    def test_exactly_one_of_several_racing_revocations_counts(self, tokens: TokenStore) -> None:
        tokens.create_token(TOKEN)
        race(*[lambda n=n: tokens.revoke_token("a1", n) is not None for n in range(1, 9)])
        found = tokens.token("a1")
        assert found is not None
        assert tokens.revoke_token("a1", 99) == found

    def test_an_id_is_compared_as_text_only(self, tokens: TokenStore) -> None:
        """No operator of the database, whatever it looks like."""
        tokens.create_token(TOKEN)
        for text in ("$ne", '{"$ne": null}', "a.1", "$where", "", "*", "A1"):
            assert tokens.token(text) is None
            assert tokens.revoke_token(text, 5) is None
        assert tokens.token("a1") == TOKEN
