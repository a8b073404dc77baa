"""The keys that sign sequencers."""

from django.db import models

from .fields import stamped, uuid_key


class SigningKey(models.Model):
    """An Ed25519 key. The private part is stored encrypted by the keyring of `TITEN_SECRET_KEYS`.

    It is published before `signs_from`, signs until a newer one does, and stays published until what
    it signed has run out.
    """

    id = uuid_key()
    public = models.CharField(max_length=64)
    private = models.BinaryField(editable=False)
    signs_from = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True)
    created_at = stamped()

    class Meta:
        ordering = ["-signs_from"]

    def __str__(self) -> str:
        name: str = self.id.hex
        return name
