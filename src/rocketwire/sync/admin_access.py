"""The part of the blocking admin client that says who may do what."""

from __future__ import annotations

from collections.abc import Sequence

from rocketwire.access_values import PlainAccount, Policy, User
from rocketwire.core.admin import access, plain_access
from rocketwire.sync.reader import Reader


class AccessAdmin(Reader):
    """Users and policies of brokers from 5.3.0 on, and accounts of the plain ACL of 4.x.

    All of it is an ``UnsupportedRequestError`` where a broker can't do it, which says what it needs.
    """

    def users(self) -> tuple[User, ...]:
        """All users, and which brokers know them; brokers from 5.3.0 on."""
        deadline = self._deadline()
        return self._run(access.list_users(self._instance, deadline))

    def create_user(self, name: str, password: str, *, is_super: bool = False) -> tuple[str, ...]:
        """Make a user on every broker, slaves included; returns the brokers.

        Raises:
            InvalidMessageError: there is such a user, or the password is empty.
        """
        deadline = self._deadline()
        return self._run(
            access.create_user(self._instance, name, password, is_super=is_super, deadline=deadline)
        )

    def change_user(
        self,
        name: str,
        *,
        password: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> tuple[str, ...]:
        """Change what is given of a user; returns the brokers.

        Raises:
            InvalidMessageError: there is no such user, or nothing to change.
        """
        deadline = self._deadline()
        return self._run(
            access.change_user(
                self._instance,
                name,
                password=password,
                is_super=is_super,
                is_enabled=is_enabled,
                deadline=deadline,
            )
        )

    def delete_user(self, name: str) -> tuple[str, ...]:
        """Delete a user with its policies; returns the brokers.

        Raises:
            InvalidMessageError: there is no such user.
        """
        deadline = self._deadline()
        return self._run(access.delete_user(self._instance, name, deadline))

    def policies(self, user: str | None = None) -> tuple[Policy, ...]:
        """The policies of all users, or of one."""
        deadline = self._deadline()
        return self._run(access.list_policies(self._instance, user, deadline))

    def set_policy(
        self,
        user: str,
        resource: str,
        actions: Sequence[str],
        *,
        is_allowed: bool = True,
        sources: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Put a policy in place of the user's one for the same resource; returns the brokers.

        Args:
            user: its name.
            resource: ``Topic:orders``, ``Topic:ord*``, ``Group:billing``, ``Cluster:*`` or ``*``.
            actions: All, Pub, Sub, Create, Update, Delete, Get, List.
            is_allowed: False forbids it, which is stronger.
            sources: addresses and networks from which it counts; from anywhere by default.

        Raises:
            InvalidMessageError: the resource or an action is none, or there is no such user.
        """
        deadline = self._deadline()
        return self._run(
            access.set_policy(
                self._instance,
                user,
                resource,
                actions,
                is_allowed=is_allowed,
                sources=sources,
                deadline=deadline,
            )
        )

    def delete_policy(self, user: str, resource: str | None = None) -> tuple[str, ...]:
        """Take a policy away, or all policies of a user; returns the brokers.

        Raises:
            InvalidMessageError: there is no such user or policy.
        """
        deadline = self._deadline()
        return self._run(access.delete_policy(self._instance, user, resource, deadline))

    def plain_accounts(self) -> tuple[PlainAccount, ...]:
        """The accounts of the plain ACL of 4.x, without their secrets."""
        deadline = self._deadline()
        return self._run(plain_access.list_accounts(self._instance, deadline))

    def put_plain_account(self, account: PlainAccount, secret_key: str) -> tuple[str, ...]:
        """Make or change an account of the plain ACL of 4.x; returns the brokers.

        Args:
            account: as it shall be.
            secret_key: of the account; brokers want it with every change.

        Raises:
            InvalidMessageError: the account makes no sense.
        """
        deadline = self._deadline()
        return self._run(plain_access.put_account(self._instance, account, secret_key, deadline))

    def delete_plain_account(self, access_key: str) -> tuple[str, ...]:
        """Delete an account of the plain ACL of 4.x; returns the brokers.

        Raises:
            InvalidMessageError: there is no such account.
        """
        deadline = self._deadline()
        return self._run(plain_access.delete_account(self._instance, access_key, deadline))
