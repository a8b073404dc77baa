# One image for every process of compose.yaml.
FROM python:3.13-slim AS packages
COPY requirements.txt .
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements.txt

FROM python:3.13-slim
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TITEN_VAR=/titen/var
RUN useradd --system --create-home titen
COPY --from=packages /venv /venv
WORKDIR /titen
COPY . .
# Static files belong to the image; the settings need no secret and no server for this.
RUN mkdir var && python manage.py collectstatic --noinput && chown -R titen: var
USER titen
EXPOSE 8000
